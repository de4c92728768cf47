/* Calls of tuned code from Python: arguments checked and the entry run, at the price of a function call. Built for the Python and
 * the NumPy that import it. It says no sentences: what does not fit is left to Python, which finds out what is wrong with it. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#define NPY_NO_DEPRECATED_API NPY_1_22_API_VERSION
#include <numpy/arrayobject.h>
#include <numpy/arrayscalars.h>

#include <math.h>
#include <stdint.h>

typedef void (*entry_fn)(void **args);
/* 0 where all indices that arrays hold are in range. */
typedef int64_t (*check_fn)(void **args);

/* A parameter of the sequence: an array, a scalar, or a constant of the code, which has no place among the entry's arguments. */
typedef struct {
  PyObject *name;
  PyObject *accepted; /* the object that a constant may be, NULL until there is one */
  char kind;          /* 'a', 's', 'c' */
  char type;          /* NumPy's letter for floats, integers with and without a sign, truth values: 'f', 'i', 'u', 'b' */
  char is_written;
  int place; /* among the entry's arguments */
  int n_bytes; /* of an element */
  int n_axes;
  npy_intp *shape;
} parameter;

/* As C's scalars are in memory: a truth value is an int, a half its bits. */
typedef union {
  char f16[2];
  float f32;
  double f64;
  int8_t i8;
  uint8_t u8;
  int16_t i16;
  uint16_t u16;
  int32_t i32;
  uint32_t u32;
  int64_t i64;
  uint64_t u64;
} number;

typedef struct {
  PyObject_HEAD
  vectorcallfunc vectorcall;
  entry_fn entry;
  check_fn check;
  int n_parameters;
  int n_places; /* arguments of the entry but for the workspace */
  parameter *parameters;
  PyObject *pool; /* a list of workspaces that no call uses; NULL where the entry takes none */
  PyObject *make; /* makes another */
  PyObject *held; /* handles of the libraries of `entry` and `check`, which keep them open */
  const char *message; /* of the assertion that failed in the last run, or empty; NULL for code without assertions */
  PyObject *kernel;    /* its attribute `lock` is around a run and a look at the message */
  PyObject *errors;    /* pairs of words and a class: the first one whose words the message has is raised */
} caller;

static int array_fits(const parameter *p, PyObject *given) {
  if (Py_TYPE(given) != &PyArray_Type) return 0;
  PyArrayObject *a = (PyArrayObject *)given;
  PyArray_Descr *descr = PyArray_DESCR(a);
  if (descr->kind != p->type || PyArray_ITEMSIZE(a) != p->n_bytes || !PyArray_ISNBO(descr->byteorder)) return 0;
  int wanted = NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_ALIGNED | (p->is_written ? NPY_ARRAY_WRITEABLE : 0);
  if ((PyArray_FLAGS(a) & wanted) != wanted || PyArray_NDIM(a) != p->n_axes) return 0;
  for (int k = 0; k < p->n_axes; k++)
    if (PyArray_DIM(a, k) != p->shape[k]) return 0;
  return 1;
}

static int is_integer(PyObject *x) {
  if (PyLong_Check(x)) return !PyBool_Check(x);
  return PyArray_IsScalar(x, Integer) && !PyArray_IsScalar(x, Timedelta);
}

/* Whether the number fits its type; no exception is left. */
static int scalar_fits(const parameter *p, PyObject *x, number *value) {
  if (p->type == 'f') {
    if (!PyFloat_Check(x) && !PyArray_IsScalar(x, Floating) && !is_integer(x)) return 0;
    double v = PyFloat_AsDouble(x);
    if (v == -1.0 && PyErr_Occurred()) {
      PyErr_Clear();
      return 0;
    }
    if (p->n_bytes == 8) {
      value->f64 = v;
      return 1;
    }
    if (p->n_bytes == 2) {
      if (PyFloat_Pack2(v, value->f16, PY_LITTLE_ENDIAN) == 0) return 1;
      PyErr_Clear();
      return 0;
    }
    value->f32 = (float)v;
    return !isinf(value->f32) || isinf(v);
  }
  if (p->type == 'b') {
    if (x != Py_True && x != Py_False) return 0;
    value->i32 = x == Py_True;
    return 1;
  }
  if (!is_integer(x)) return 0;
  PyObject *whole = PyNumber_Index(x);
  if (whole != NULL && p->type == 'u' && p->n_bytes == 8) {
    value->u64 = PyLong_AsUnsignedLongLong(whole);
    Py_DECREF(whole);
    if (!PyErr_Occurred()) return 1;
    PyErr_Clear();
    return 0;
  }
  int overflows = 0;
  long long v = whole == NULL ? -1 : PyLong_AsLongLongAndOverflow(whole, &overflows);
  Py_XDECREF(whole);
  if (PyErr_Occurred()) {
    PyErr_Clear();
    return 0;
  }
  if (overflows) return 0;
  value->i64 = v; /* the lowest bytes come first */
  if (p->n_bytes == 8) return 1;
  int bits = 8 * p->n_bytes;
  long long least = p->type == 'u' ? 0 : -(1LL << (bits - 1));
  return v >= least && v < least + (1LL << bits);
}

/* The place of a name among the parameters, -1 where there is none. Names of calls are interned, as those here are. */
static int place_of(const caller *self, PyObject *name) {
  for (int k = 0; k < self->n_parameters; k++)
    if (self->parameters[k].name == name) return k;
  for (int k = 0; k < self->n_parameters; k++)
    if (PyUnicode_Compare(self->parameters[k].name, name) == 0) return k;
  PyErr_Clear();
  return -1;
}

/* What is given for each parameter, NULL for nothing; whether all of it has a parameter, once. */
static int arrange(const caller *self, PyObject *const *args, Py_ssize_t n_args, PyObject *names, PyObject **given) {
  if (n_args > self->n_parameters) return 0;
  for (int k = 0; k < self->n_parameters; k++) given[k] = k < n_args ? args[k] : NULL;
  Py_ssize_t n_named = names == NULL ? 0 : PyTuple_GET_SIZE(names);
  for (Py_ssize_t k = 0; k < n_named; k++) {
    int place = place_of(self, PyTuple_GET_ITEM(names, k));
    if (place < 0 || given[place] != NULL) return 0;
    given[place] = args[n_args + k];
  }
  return 1;
}

/* Whether an array that is written shares memory with another. */
static int overlaps(const caller *self, PyObject **given) {
  for (int k = 0; k < self->n_parameters; k++) {
    const parameter *p = &self->parameters[k];
    if (p->kind != 'a' || !p->is_written) continue;
    const char *begin = PyArray_BYTES((PyArrayObject *)given[k]);
    const char *end = begin + PyArray_NBYTES((PyArrayObject *)given[k]);
    for (int j = 0; j < self->n_parameters; j++) {
      if (self->parameters[j].kind != 'a' || j == k) continue;
      const char *other = PyArray_BYTES((PyArrayObject *)given[j]);
      if (begin < other + PyArray_NBYTES((PyArrayObject *)given[j]) && other < end) return 1;
    }
  }
  return 0;
}

/* A workspace that is this call's alone: one that no other call uses, or a new one. NULL with an exception. */
static PyObject *take_workspace(const caller *self) {
  Py_ssize_t n = PyList_GET_SIZE(self->pool);
  if (n == 0) return PyObject_CallNoArgs(self->make);
  PyObject *taken = PyList_GET_ITEM(self->pool, n - 1);
  Py_INCREF(taken);
  if (PyList_SetSlice(self->pool, n - 1, n, NULL) < 0) Py_CLEAR(taken);
  return taken;
}

/* The result of a method without arguments. It makes no bound method: a collection of garbage, whose finalizers may call kernels,
 * could begin there, while the lock is held. */
static PyObject *called(PyObject *object, const char *method) {
  PyObject *name = PyUnicode_InternFromString(method);
  PyObject *found = name == NULL ? NULL : PyObject_CallMethodNoArgs(object, name);
  Py_XDECREF(name);
  return found;
}

/* The lock of code with assertions, which this call has then. NULL with an exception. */
static PyObject *take_lock(const caller *self) {
  PyObject *lock = PyObject_GetAttrString(self->kernel, "lock");
  PyObject *taken = lock == NULL ? NULL : called(lock, "acquire");
  if (taken == NULL) Py_CLEAR(lock);
  Py_XDECREF(taken);
  return lock;
}

/* Gives the lock back. Sets the exception of the assertion that failed if one did. No code of Python's runs here: a signal is
 * handled behind the call, whose run is known then. */
static int has_failed(const caller *self, PyObject *lock, int was_run) {
  int failed = was_run && self->message[0] != 0;
  PyObject *text = failed ? PyUnicode_DecodeUTF8(self->message, (Py_ssize_t)strlen(self->message), "replace") : NULL;
  if (failed && text == NULL) PyErr_Clear();
  PyObject *given = called(lock, "release");
  Py_DECREF(lock);
  if (given == NULL) failed = 1;
  else if (failed && text == NULL) PyErr_NoMemory();
  for (Py_ssize_t k = 0; text != NULL && !PyErr_Occurred() && k < PyTuple_GET_SIZE(self->errors); k++) {
    PyObject *pair = PyTuple_GET_ITEM(self->errors, k);
    if (PyUnicode_Contains(text, PyTuple_GET_ITEM(pair, 0)) == 1) PyErr_SetObject(PyTuple_GET_ITEM(pair, 1), text);
  }
  Py_XDECREF(given);
  Py_XDECREF(text);
  return failed;
}

/* True: it was run. False: nothing was done, for the arguments are not as they should be. */
static PyObject *call(PyObject *object, PyObject *const *args, size_t flags, PyObject *names) {
  caller *self = (caller *)object;
  int n = self->n_parameters;
  PyObject *given[n + 1];
  number values[n + 1];
  void *pointers[self->n_places + 1];
  if (!arrange(self, args, PyVectorcall_NARGS(flags), names, given)) Py_RETURN_FALSE;
  for (int k = 0; k < n; k++) {
    const parameter *p = &self->parameters[k];
    if (p->kind == 'c') {
      if (given[k] != NULL && given[k] != p->accepted) Py_RETURN_FALSE;
      continue;
    }
    if (given[k] == NULL) Py_RETURN_FALSE;
    if (p->kind == 'a') {
      if (!array_fits(p, given[k])) Py_RETURN_FALSE;
      pointers[p->place] = PyArray_DATA((PyArrayObject *)given[k]);
    } else {
      if (!scalar_fits(p, given[k], &values[k])) Py_RETURN_FALSE;
      pointers[p->place] = &values[k];
    }
  }
  if (overlaps(self, given)) Py_RETURN_FALSE;
  PyObject *workspace = NULL;
  if (self->pool != NULL) {
    workspace = take_workspace(self);
    if (workspace == NULL) return NULL;
    pointers[self->n_places] = PyArray_DATA((PyArrayObject *)workspace);
  }
  PyObject *lock = NULL;
  if (self->message != NULL && (lock = take_lock(self)) == NULL) {
    Py_XDECREF(workspace);
    return NULL;
  }
  int64_t bad = 0;
  Py_BEGIN_ALLOW_THREADS;
  if (self->check != NULL) bad = self->check(pointers);
  if (bad == 0) self->entry(pointers);
  Py_END_ALLOW_THREADS;
  int failed = lock != NULL && has_failed(self, lock, bad == 0);
  if (workspace != NULL) {
    if (PyList_Append(self->pool, workspace) < 0) failed = 1;
    Py_DECREF(workspace);
  }
  if (failed) return NULL;
  return PyBool_FromLong(bad == 0);
}

static void release(PyObject *object) {
  caller *self = (caller *)object;
  PyTypeObject *type = Py_TYPE(object);
  for (int k = 0; k < self->n_parameters; k++) {
    Py_XDECREF(self->parameters[k].name);
    Py_XDECREF(self->parameters[k].accepted);
    PyMem_Free(self->parameters[k].shape);
  }
  PyMem_Free(self->parameters);
  Py_XDECREF(self->pool);
  Py_XDECREF(self->make);
  Py_XDECREF(self->held);
  Py_XDECREF(self->kernel);
  Py_XDECREF(self->errors);
  type->tp_free(object);
  Py_DECREF(type);
}

/* One row of the table: (name, kind, type, bytes of an element, place, is_written, shape). */
static int read_parameter(PyObject *row, parameter *p) {
  PyObject *name, *shape;
  int kind, type, is_written;
  if (!PyArg_ParseTuple(row, "UCCiipO!", &name, &kind, &type, &p->n_bytes, &p->place, &is_written, &PyTuple_Type, &shape)) {
    return -1;
  }
  p->name = Py_NewRef(name);
  PyUnicode_InternInPlace(&p->name);
  p->kind = (char)kind;
  p->type = (char)type;
  p->is_written = (char)is_written;
  p->n_axes = (int)PyTuple_GET_SIZE(shape);
  p->shape = PyMem_Calloc((size_t)p->n_axes + 1, sizeof *p->shape);
  if (p->shape == NULL) {
    PyErr_NoMemory();
    return -1;
  }
  for (int k = 0; k < p->n_axes; k++) {
    p->shape[k] = PyLong_AsSsize_t(PyTuple_GET_ITEM(shape, k));
    if (p->shape[k] == -1 && PyErr_Occurred()) return -1;
  }
  return 0;
}

/* Caller(entry, check, parameters, pool, make, held, message, kernel, errors): addresses (check may be 0), the table, the
 * workspaces (None: the entry takes none), and what must live as long as the caller. The last three are of code with assertions. */
static PyObject *create(PyTypeObject *type, PyObject *args, PyObject *named) {
  unsigned long long entry, check, message = 0;
  PyObject *rows, *pool, *make, *held, *kernel = NULL, *errors = NULL;
  if (named != NULL && PyDict_GET_SIZE(named) != 0) return PyErr_Format(PyExc_TypeError, "no names");
  if (!PyArg_ParseTuple(args, "KKO!OOO|KOO!", &entry, &check, &PyTuple_Type, &rows, &pool, &make, &held, &message, &kernel,
                        &PyTuple_Type, &errors)) {
    return NULL;
  }
  if (pool != Py_None && !PyList_CheckExact(pool)) return PyErr_Format(PyExc_TypeError, "the pool is no list");
  caller *self = (caller *)type->tp_alloc(type, 0);
  if (self == NULL) return NULL;
  self->vectorcall = call;
  self->entry = (entry_fn)(uintptr_t)entry;
  self->check = (check_fn)(uintptr_t)check;
  self->held = Py_NewRef(held);
  if (errors != NULL) {
    self->message = (const char *)(uintptr_t)message;
    self->kernel = Py_NewRef(kernel);
    self->errors = Py_NewRef(errors);
  }
  if (pool != Py_None) {
    self->pool = Py_NewRef(pool);
    self->make = Py_NewRef(make);
  }
  int n = (int)PyTuple_GET_SIZE(rows);
  self->parameters = PyMem_Calloc((size_t)n + 1, sizeof *self->parameters);
  if (self->parameters == NULL) {
    Py_DECREF(self);
    return PyErr_NoMemory();
  }
  for (int k = 0; k < n; k++) {
    self->n_parameters = k + 1;
    if (read_parameter(PyTuple_GET_ITEM(rows, k), &self->parameters[k]) < 0) {
      Py_DECREF(self);
      return NULL;
    }
    self->n_places += self->parameters[k].kind != 'c';
  }
  return (PyObject *)self;
}

/* accept(k, value): from now on parameter k, a constant, may be this very object. */
static PyObject *accept_constant(PyObject *object, PyObject *args) {
  caller *self = (caller *)object;
  int k;
  PyObject *value;
  if (!PyArg_ParseTuple(args, "iO", &k, &value)) return NULL;
  if (k < 0 || k >= self->n_parameters || self->parameters[k].kind != 'c') {
    return PyErr_Format(PyExc_IndexError, "parameter %d is no constant", k);
  }
  Py_XSETREF(self->parameters[k].accepted, Py_NewRef(value));
  Py_RETURN_NONE;
}

static PyMethodDef methods[] = {{"accept", accept_constant, METH_VARARGS, NULL}, {NULL, NULL, 0, NULL}};

static PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(caller, vectorcall), READONLY, NULL}, {NULL, 0, 0, 0, NULL}};

static PyType_Slot slots[] = {{Py_tp_new, create},      {Py_tp_dealloc, release}, {Py_tp_call, PyVectorcall_Call},
                              {Py_tp_methods, methods}, {Py_tp_members, members}, {0, NULL}};

static PyType_Spec spec = {.name = "call.Caller",
                           .basicsize = sizeof(caller),
                           .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL,
                           .slots = slots};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = "call", .m_size = -1};

PyMODINIT_FUNC PyInit_call(void);
PyMODINIT_FUNC PyInit_call(void) {
  import_array();
  PyObject *module = PyModule_Create(&definition);
  PyObject *type = module == NULL ? NULL : PyType_FromSpec(&spec);
  if (type == NULL || PyModule_AddObject(module, "Caller", type) < 0) {
    Py_XDECREF(type);
    Py_XDECREF(module);
    return NULL;
  }
  return module;
}
