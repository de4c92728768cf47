/* CUDA C on a CPU: the text of a kernel, compiled by a C++ compiler behind this header, runs as it would on a GPU, and what
 * a GPU leaves undefined is an error here.
 *
 * The threads of a block are fibers of one thread of the system. A fiber runs until it has to wait at a barrier or for other
 * lanes of its warp, or until it accesses memory that other threads change meanwhile: at an atomic operation, at a strong load
 * or store, at a fence. Which one runs next is forward, backward or random. The compiler is told to instrument loads and stores
 * (-fsanitize=thread, without its library): the hooks below see every access of a kernel to memory, and check that it is
 * inside an array, aligned, and ordered after what other threads did to the same element: by a barrier, or by a publication.
 *
 * A publication is a fence and then an atomic operation or a strong store; who finds its value and makes a fence, or comes to
 * a barrier of the block, is behind all that was done before the fence. Threads that spin and change nothing stand still.
 *
 * Blocks run one after the other, until one waits for another: its threads run and change nothing. Then as many blocks are
 * begun as a GPU holds at once, and take turns. Where all of these wait, the launch stands still.
 *
 * Arrays in shared memory hold 0xff in every byte when a block begins, which is NaN as a number.
 */
#pragma once

#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

/* What belongs to the emulator is not instrumented. */
#if defined(__clang__)
#define EMULATOR_OWN __attribute__((no_sanitize("thread", "bounds", "alignment")))
#else
#define EMULATOR_OWN __attribute__((no_sanitize_thread, no_sanitize("bounds"), no_sanitize("alignment")))
#endif

#define __global__ __attribute__((used, noinline))
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))

/* ---- types ------------------------------------------------------------------------------------------------------------ */

#define EMULATOR_VECTORS(T, name, a2, a4)                                                                        \
  struct name##1 { T x; };                                                                                       \
  struct __attribute__((aligned(a2))) name##2 { T x, y; };                                                       \
  struct name##3 { T x, y, z; };                                                                                 \
  struct __attribute__((aligned(a4))) name##4 { T x, y, z, w; };                                                 \
  inline name##1 make_##name##1(T x) { return {x}; }                                                             \
  inline name##2 make_##name##2(T x, T y) { return {x, y}; }                                                     \
  inline name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; }                                             \
  inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
EMULATOR_VECTORS(signed char, char, 2, 4)
EMULATOR_VECTORS(unsigned char, uchar, 2, 4)
EMULATOR_VECTORS(short, short, 4, 8)
EMULATOR_VECTORS(unsigned short, ushort, 4, 8)
EMULATOR_VECTORS(int, int, 8, 16)
EMULATOR_VECTORS(unsigned, uint, 8, 16)
EMULATOR_VECTORS(long long, longlong, 16, 16)
EMULATOR_VECTORS(unsigned long long, ulonglong, 16, 16)
EMULATOR_VECTORS(float, float, 8, 16)
EMULATOR_VECTORS(double, double, 16, 16)

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

namespace emulator {

/* ---- the state of one launch ------------------------------------------------------------------------------------------ */

enum { MAX_THREADS = 1024, MAX_THREADS_ALONG_Z = 64, WARP = 32, MAX_REGIONS = 256, MAX_MASKS = WARP, MAX_KEPT = 256, MAX_COMPONENTS = 512 };
enum { STATIC_SHARED_BYTES = 48 << 10, SHARED_BYTES = 227 << 10, ARENA_BYTES = 1 << 20, GAP_BYTES = 256 };
/* Without optimisation a kernel of long unrolled loops takes more than 64 KiB for its locals. Pages that are not touched take no memory. */
enum { STACK_BYTES = 256 << 10, PAGE_BYTES = 4096 };
enum { MAX_IDLE_ROUNDS = 1 << 16 }; /* in which threads run and nothing changes */
enum { WAITING_ROUNDS = 256 }; /* of these, after which another block has its turn */
enum { RESERVED_SHARED_BYTES = 1 << 10 }; /* of every block, kept by the system */
enum State : unsigned char { READY, AT_BARRIER, AT_WARP, AT_MASK, DONE };
enum Kind { READ, READ_ONLY, WRITE, ATOMIC, STRONG_READ, STRONG_WRITE }; /* READ_ONLY: through the cache that sees no writes */
enum Order { FORWARD, BACKWARD, RANDOM };
static const unsigned SEVERAL_IN_WARP = 0xfffe, SEVERAL = 0xffff;

/* Who last wrote and read one element: an interval of a block between two barriers, a thread, how often its warp had met by
 * then, and the number of fences before. Strong loads are noted apart from others, and so is the last read by another block
 * than the last reader's. `release_clock`: what the element publishes, the fence before its last strong store.
 * `read_only_interval`: the last read through the read-only cache. A cell of an earlier launch counts for nothing. */
struct Cell {
  uint32_t write_interval, read_interval, strong_interval, other_interval, read_only_interval;
  uint32_t write_clock, read_clock, strong_clock, other_clock, release_clock;
  uint16_t write_thread, read_thread, strong_thread, read_warp, write_warp_time, read_warp_time;
  uint8_t write_is_strong;
};

struct Region {
  uintptr_t begin, end;
  const char *name;
  Cell *cells; /* null where races are not looked for */
  unsigned granule;
  bool is_shared;
  const void *site; /* where a shared array is declared */
  uint32_t filled_in; /* the block that its contents were last wiped for */
  size_t row_bytes, kept_bytes; /* the first bytes of each row, which nobody may write */
};

/* Arrays with such bytes, by where they begin. */
struct Kept {
  uintptr_t begin;
  size_t row_bytes, n_bytes;
};

/* What the lanes of one mask exchange; two rounds of values, since a lane may be one round ahead. */
struct Exchange {
  unsigned mask, arrived, generation, n_unread;
  int line;
  uint64_t value[2][WARP];
};

struct Copy {
  void *to;
  const void *from;
  int n_bytes, n_zeros, group;
};

struct Thread {
  void *stack_pointer;
#if !defined(__x86_64__)
  ucontext_t context;
#endif
  uint3 index;
  unsigned linear;
  State state;
  int line;
  Exchange *exchange;
  int vote;
  unsigned mask; /* of the lanes that run together with this one */
  uint32_t fence, found, acquired; /* its last fence, what it found published, and all before which it is ordered */
  uint32_t *found_of, *seen_of; /* the last two by block, once blocks wait for one another; null: nothing yet */
  bool has_written; /* to global memory since its last fence or barrier */
  Copy *copies;
  int n_copies, n_copies_max, n_done, group;
};

/* What an element publishes of each block, once blocks wait for one another: fences behind which its finder is. */
struct Publication {
  uintptr_t at;
  uint32_t *clock_of;
};

/* What the emulated GPU holds at once. Registers are not counted: only its compiler knows them. */
struct Machine {
  unsigned multiprocessors, threads, blocks;
  size_t shared_bytes;
};

/* A block that waits for others, while another one runs. */
struct Parked {
  uint3 index;
  uint32_t number, interval, serial;
  unsigned n_finished, n_at_mask, n_own;
  bool has_written;
  size_t arena_used, static_shared, stack_bytes;
  uint16_t warp_time[MAX_THREADS / WARP];
  char *stacks, *arena;
  uint32_t *seen_of;
  Region *own;
  Thread *threads;
  Exchange *exchanges;
};

static Machine machine = {132, 2048, 32, 228 << 10};
static Thread threads[MAX_THREADS];
static Exchange exchanges[MAX_THREADS / WARP][MAX_MASKS];
static uint16_t warp_time[MAX_THREADS / WARP];
static Region regions[MAX_REGIONS];
static Kept kept[MAX_KEPT];
static unsigned n_regions, n_arrays, n_of_kept, last_region;
static Thread *now;
static void *main_stack_pointer;
#if !defined(__x86_64__)
static ucontext_t main_context;
#endif
static char *stacks, *arena, *first_stacks, *first_arena;
static unsigned n_guarded;
static size_t stack_bytes, arena_used, static_shared, most_static_shared, dynamic_shared;
static uint3 block_index;
static dim3 block_size, grid_size;
static unsigned n_threads, n_finished;
static uint32_t interval, last_interval, first_of_launch, block_serial, block_number;
static uint32_t *block_of; /* of each interval of this launch the number of its block, in the order in which they begin */
static size_t n_block_of;
static Parked **parked; /* the longest parked first */
static size_t n_parked, n_parked_max;
static unsigned long n_blocks, n_begun, n_idle;
static bool are_together; /* blocks of this launch have waited for one another */
static uint32_t *block_seen_of; /* what all threads of the block are behind, by block */
static Publication *publications; /* a table of 2^k places, of which less than half is in use */
static size_t n_publications, n_places;
static uint32_t n_fences, own_release_clock;
static bool block_has_written; /* before its last barrier, to global memory, and made no fence since */
static unsigned n_at_mask;
static bool has_changed; /* since the last round of threads began */
static int vote_or, vote_and, vote_count;
static const char *kernel_name;
static Order order;
static uint64_t random_state;
static char message[600];

extern "C" __attribute__((visibility("hidden"))) char __ehdr_start, _end;

/* ---- fibers ------------------------------------------------------------------------------------------------------------ */

#if defined(__x86_64__)
extern "C" void emulator_switch(void **save, void *load);
asm(".text\n"
    ".p2align 4\n"
    ".type emulator_switch,@function\n"
    "emulator_switch:\n"
    "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
    "  movq %rsp, (%rdi)\n"
    "  movq %rsi, %rsp\n"
    "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n"
    "  ret\n"
    ".size emulator_switch,.-emulator_switch\n");
#endif

EMULATOR_OWN static void to_scheduler() {
#if defined(__x86_64__)
  emulator_switch(&now->stack_pointer, main_stack_pointer);
#else
  swapcontext(&now->context, &main_context);
#endif
}

EMULATOR_OWN static void resume(Thread *t) {
  now = t;
#if defined(__x86_64__)
  emulator_switch(&main_stack_pointer, t->stack_pointer);
#else
  swapcontext(&main_context, &t->context);
#endif
  now = nullptr;
}

/* ---- errors ------------------------------------------------------------------------------------------------------------ */

/* Where in its block a thread is: "(x, y, z)". */
EMULATOR_OWN static const char *coordinates(unsigned linear, char (&text)[48]) {
  const uint3 &at = threads[linear].index;
  snprintf(text, sizeof text, "(%u, %u, %u)", at.x, at.y, at.z);
  return text;
}

/* Keep the first error, and leave the fiber for good if one runs. */
EMULATOR_OWN __attribute__((format(printf, 1, 2), cold)) static void fail(const char *format, ...) {
  if (!message[0]) {
    int n = 0;
    if (now)
      n = snprintf(message, sizeof message, "%s, thread (%u, %u, %u) of block (%u, %u, %u): ", kernel_name, now->index.x,
                   now->index.y, now->index.z, block_index.x, block_index.y, block_index.z);
    else
      n = snprintf(message, sizeof message, "%s, block (%u, %u, %u): ", kernel_name, block_index.x, block_index.y,
                   block_index.z);
    va_list list;
    va_start(list, format);
    vsnprintf(message + n, sizeof message - (size_t)n, format, list);
    va_end(list);
  }
  if (now) {
    now->state = DONE;
    to_scheduler();
  }
}

/* ---- memory ------------------------------------------------------------------------------------------------------------ */

EMULATOR_OWN static void *pages(size_t n_bytes) {
  void *p = mmap(nullptr, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return p == MAP_FAILED ? nullptr : p;
}

EMULATOR_OWN static Region *add_region(void *begin, size_t n_bytes, unsigned granule, const char *name, bool is_shared) {
  if (n_regions == MAX_REGIONS) {
    fail("more than %d arrays", (int)MAX_REGIONS);
    return nullptr;
  }
  Region *r = &regions[n_regions++];
  *r = Region{(uintptr_t)begin, (uintptr_t)begin + n_bytes, name, nullptr, granule, is_shared, nullptr, 0, 0, 0};
  if (n_bytes > 0 && n_bytes <= (64u << 20))
    r->cells = (Cell *)pages((n_bytes + granule - 1) / granule * sizeof(Cell));
  return r;
}

EMULATOR_OWN static void drop_regions(unsigned n_kept) {
  for (unsigned k = n_kept; k < n_regions; k++)
    if (regions[k].cells)
      munmap(regions[k].cells, (regions[k].end - regions[k].begin + regions[k].granule - 1) / regions[k].granule * sizeof(Cell));
  n_regions = n_kept;
  last_region = 0;
}

EMULATOR_OWN static inline bool is_read(Kind kind) { return kind == READ || kind == READ_ONLY || kind == STRONG_READ; }

EMULATOR_OWN static const char *verb(Kind kind) { return is_read(kind) ? "reads" : kind == ATOMIC ? "updates" : "writes"; }

EMULATOR_OWN __attribute__((cold)) static void out_of_bounds(uintptr_t a, unsigned n_bytes, Kind kind) {
  const Region *near = nullptr;
  uintptr_t least = (uintptr_t)16 << 20;
  for (unsigned k = 0; k < n_regions; k++) {
    const Region &r = regions[k];
    uintptr_t distance = a < r.begin ? r.begin - a : a >= r.end ? a - r.end : 0;
    if (distance < least) near = &r, least = distance;
  }
  if (!near)
    fail("%s %u bytes outside every array", verb(kind), n_bytes);
  else if (a < near->begin)
    fail("%s %u bytes out of bounds, %lu bytes before the start of %s", verb(kind), n_bytes, (unsigned long)least, near->name);
  else if (a >= near->end)
    fail("%s %u bytes out of bounds, %lu bytes past the end of %s", verb(kind), n_bytes, (unsigned long)least, near->name);
  else
    fail("%s %u bytes out of bounds, across the end of %s", verb(kind), n_bytes, near->name);
}

EMULATOR_OWN __attribute__((cold)) static void race(const Region &r, uintptr_t a, Kind kind, const char *did, unsigned who,
                                                    bool is_other_block) {
  unsigned long offset = (unsigned long)(a - r.begin);
  char thread[48];
  if (is_other_block)
    fail("%s byte %lu of %s, which another block of this launch %s", verb(kind), offset, r.name, did);
  else if (who >= SEVERAL_IN_WARP)
    fail("%s byte %lu of %s, which several threads %s with no barrier in between", verb(kind), offset, r.name, did);
  else
    fail("%s byte %lu of %s, which thread %s of the block %s with no barrier in between", verb(kind), offset, r.name,
         coordinates(who, thread), did);
}

/* Whether an access of this thread comes after one that `interval`, `who`, `warp` and `time` tell of. */
EMULATOR_OWN static inline bool is_ordered(uint32_t then, unsigned who, unsigned warp, unsigned time) {
  if (then != interval || who == now->linear) return true;
  unsigned own = now->linear / WARP;
  return who != SEVERAL && warp == own && time < warp_time[own];
}

EMULATOR_OWN static inline bool is_strong(Kind kind) { return kind >= ATOMIC; }

/* The fences of a block behind which this thread is. */
EMULATOR_OWN static inline uint32_t seen_of(uint32_t block) {
  uint32_t most = now->acquired;
  if (block_seen_of && block_seen_of[block] > most) most = block_seen_of[block];
  if (now->seen_of && now->seen_of[block] > most) most = now->seen_of[block];
  return most;
}

/* Whether an access is published to this thread. While blocks run one after the other one clock does for all. */
EMULATOR_OWN static inline bool is_published(uint32_t then, uint32_t clock) {
  if (!are_together) return clock < now->acquired;
  return then < first_of_launch || clock < seen_of(block_of[then - first_of_launch]);
}

/* Whether an access of this thread comes after one of another block of this launch, or of none. */
EMULATOR_OWN static inline bool is_behind_blocks(const Region &r, uint32_t then, uint32_t clock) {
  if (then < first_of_launch || r.is_shared || block_of[then - first_of_launch] == block_number) return true;
  return is_published(then, clock);
}

/* The place of what an element publishes, or where it would be. */
EMULATOR_OWN static Publication *publication(uintptr_t at) {
  if (2 * n_publications >= n_places) {
    size_t n_before = n_places;
    Publication *before = publications;
    n_places = n_before ? 2 * n_before : 64;
    publications = (Publication *)calloc(n_places, sizeof(Publication));
    for (size_t k = 0; k < n_before; k++)
      if (before[k].at) *publication(before[k].at) = before[k];
    free(before);
  }
  size_t k = (size_t)(at * 0x9e3779b97f4a7c15u >> 20) & (n_places - 1);
  while (publications[k].at && publications[k].at != at) k = (k + 1) & (n_places - 1);
  return &publications[k];
}

EMULATOR_OWN static void join(uint32_t *&all, const uint32_t *more, uint32_t at_least) {
  if (!all) all = (uint32_t *)calloc(n_blocks, sizeof(uint32_t));
  for (unsigned long k = 0; k < n_blocks; k++) {
    uint32_t other = more ? more[k] : at_least;
    if (all[k] < other) all[k] = other;
  }
}

/* Where blocks take turns, a fence says nothing of what others did before it: there is a clock of each. */
EMULATOR_OWN static void hand_over_together(uintptr_t at, uint32_t &release_clock, Kind kind) {
  Publication *p = publication(at);
  if (kind != STRONG_WRITE && release_clock) join(now->found_of, p->at ? p->clock_of : nullptr, release_clock);
  if (kind == STRONG_WRITE && !now->fence) release_clock = 0;
  if (kind == STRONG_READ || !now->fence) return;
  if (!p->at) {
    *p = Publication{at, nullptr};
    n_publications++;
    join(p->clock_of, nullptr, release_clock);
  }
  for (uint32_t k = 0; k < n_blocks; k++) {
    uint32_t own = k == block_number ? now->fence : seen_of(k);
    if (kind == STRONG_WRITE || !release_clock || p->clock_of[k] < own) p->clock_of[k] = own;
  }
  if (kind == STRONG_WRITE || release_clock < now->fence) release_clock = now->fence;
}

/* What a strong access publishes to the element's readers, and finds published there. */
EMULATOR_OWN static inline void hand_over(uintptr_t at, uint32_t &release_clock, Kind kind) {
  if (are_together) return hand_over_together(at, release_clock, kind);
  if (kind != STRONG_WRITE && now->found < release_clock) now->found = release_clock;
  if (kind == STRONG_WRITE || (kind == ATOMIC && release_clock < now->fence)) release_clock = now->fence;
}

EMULATOR_OWN static inline void meet_writes(const Region &r, Cell &c, uintptr_t a, Kind kind) {
  if (is_strong(kind) && c.write_is_strong) return;
  if (!is_published(c.write_interval, c.write_clock) && !is_ordered(c.write_interval, c.write_thread, c.write_thread / WARP, c.write_warp_time))
    return race(r, a, kind, c.write_is_strong ? "updated" : "wrote", c.write_thread, false);
  if (!is_behind_blocks(r, c.write_interval, c.write_clock)) race(r, a, kind, "wrote", 0, true);
}

EMULATOR_OWN static inline void meet_reads(const Region &r, Cell &c, uintptr_t a, Kind kind) {
  if (!is_published(c.read_interval, c.read_clock) &&
      !is_ordered(c.read_interval, c.read_thread, c.read_warp, c.read_warp_time))
    return race(r, a, kind, "read", c.read_thread, false);
  if (!is_behind_blocks(r, c.other_interval, c.other_clock) || !is_behind_blocks(r, c.read_interval, c.read_clock))
    return race(r, a, kind, "read", 0, true);
  if (is_strong(kind)) return;
  if (c.strong_interval == interval && c.strong_thread != now->linear && !is_published(c.strong_interval, c.strong_clock))
    return race(r, a, kind, "read", c.strong_thread, false);
  if (!is_behind_blocks(r, c.strong_interval, c.strong_clock)) race(r, a, kind, "read", 0, true);
}

/* The read-only cache may have a line from any time of the launch: neither barrier nor fence orders its reads and writes. */
EMULATOR_OWN static inline void meet_read_only(const Region &r, Cell &c, uintptr_t a, Kind kind) {
  unsigned long offset = (unsigned long)(a - r.begin);
  if (kind == READ_ONLY && c.write_interval >= first_of_launch)
    fail("reads byte %lu of %s through the read-only cache, and this launch wrote it", offset, r.name);
  if (!is_read(kind) && c.read_only_interval >= first_of_launch)
    fail("%s byte %lu of %s, which this launch read through the read-only cache", verb(kind), offset, r.name);
  if (kind == READ_ONLY) c.read_only_interval = interval;
}

EMULATOR_OWN static inline void meet(const Region &r, Cell &c, uintptr_t a, Kind kind) {
  unsigned warp = now->linear / WARP;
  meet_writes(r, c, a, kind);
  meet_read_only(r, c, a, kind);
  if (!is_read(kind)) {
    meet_reads(r, c, a, kind);
    if (is_strong(kind)) hand_over(a, c.release_clock, kind);
    else c.release_clock = 0;
    now->has_written |= !is_strong(kind) && !r.is_shared;
    c.write_interval = interval;
    c.write_clock = n_fences;
    c.write_thread = (uint16_t)now->linear;
    c.write_warp_time = warp_time[warp];
    c.write_is_strong = is_strong(kind);
    return;
  }
  if (kind == STRONG_READ) {
    hand_over(a, c.release_clock, kind);
    bool is_another = c.strong_interval == interval && c.strong_thread != now->linear;
    c.strong_thread = is_another ? (uint16_t)SEVERAL : (uint16_t)now->linear;
    c.strong_interval = interval;
    c.strong_clock = n_fences;
    return;
  }
  if (c.read_interval >= first_of_launch && !r.is_shared && block_of[c.read_interval - first_of_launch] != block_number)
    c.other_interval = c.read_interval, c.other_clock = c.read_clock;
  if (c.read_interval == interval && c.read_thread != now->linear)
    c.read_thread = c.read_warp == warp && c.read_thread != SEVERAL ? SEVERAL_IN_WARP : SEVERAL;
  else if (c.read_interval != interval)
    c.read_thread = (uint16_t)now->linear;
  c.read_interval = interval;
  c.read_clock = n_fences;
  c.read_warp = (uint16_t)warp;
  c.read_warp_time = warp_time[warp];
}

EMULATOR_OWN static void access(uintptr_t a, unsigned n_bytes, Kind kind, unsigned alignment) {
  if (!now || a - (uintptr_t)stacks < stack_bytes) return;
  Region *r = &regions[last_region];
  if (last_region >= n_regions || a < r->begin || a >= r->end) {
    unsigned k = 0;
    while (k < n_regions && (a < regions[k].begin || a >= regions[k].end)) k++;
    if (k == n_regions) {
      bool is_own = a >= (uintptr_t)&__ehdr_start && a < (uintptr_t)&_end; /* constants, variables of the program */
      if (!is_own) out_of_bounds(a, n_bytes, kind);
      else if (is_strong(kind)) hand_over(a, own_release_clock, kind == STRONG_READ ? kind : ATOMIC);
      return;
    }
    last_region = k;
    r = &regions[k];
  }
  if (n_bytes > r->end - a) return out_of_bounds(a, n_bytes, kind);
  if (a % alignment) return fail("%s %u bytes of %s at a misaligned address", verb(kind), n_bytes, r->name);
  has_changed |= kind == WRITE;
  if (r->kept_bytes && !is_read(kind) && (a - r->begin) % r->row_bytes < r->kept_bytes)
    return fail("%s byte %lu of %s, which is read-only", verb(kind), (unsigned long)(a - r->begin), r->name);
  if (!r->cells || n_bytes < r->granule) return;
  for (unsigned k = 0; k < n_bytes; k += r->granule) meet(*r, r->cells[(a - r->begin + k) / r->granule], a + k, kind);
}

/* ---- shared memory ----------------------------------------------------------------------------------------------------- */

EMULATOR_OWN static Region *shared_region(const void *site, size_t n_bytes, unsigned granule, const char *name) {
  for (unsigned k = n_arrays; k < n_regions; k++)
    if (regions[k].site == site) return &regions[k];
  size_t begin = (arena_used + GAP_BYTES + 127) / 128 * 128;
  if (begin + n_bytes + GAP_BYTES > ARENA_BYTES) {
    fail("shared memory of more than %d bytes", (int)ARENA_BYTES);
    return nullptr;
  }
  arena_used = begin + n_bytes;
  Region *r = add_region(arena + begin, n_bytes, granule, name, true);
  if (r) r->site = site;
  return r;
}

EMULATOR_OWN static void *enter_shared(Region *r) {
  if (r && r->filled_in != block_serial) {
    memset((void *)r->begin, 0xff, r->end - r->begin);
    r->filled_in = block_serial;
  }
  return r ? (void *)r->begin : nullptr;
}

template <class T> struct Element { typedef T type; };
template <class T, size_t n> struct Element<T[n]> : Element<T> {};

EMULATOR_OWN constexpr unsigned granule_of(size_t size) { return size >= 4 ? 4 : (unsigned)size; }

/* The array that `__shared__ A name;` declares at one place of the text. */
template <class A> EMULATOR_OWN inline A &shared_array(const char *site, const char *name) {
  unsigned n_before = n_regions;
  Region *r = shared_region(site, sizeof(A), granule_of(sizeof(typename Element<A>::type)), name);
  if (n_regions != n_before) {
    static_shared += sizeof(A);
    if (static_shared > STATIC_SHARED_BYTES)
      fail("%zu bytes of static shared memory, and %d is the most", static_shared, (int)STATIC_SHARED_BYTES);
  }
  return *(A *)enter_shared(r);
}

/* The array of unknown length that `extern __shared__ T name[];` declares: all names are one array. */
template <class T> EMULATOR_OWN inline T *dynamic_array(const char *name) {
  Region *r = shared_region(&dynamic_shared, dynamic_shared, 4, name);
  return (T *)enter_shared(r);
}

/* ---- one block --------------------------------------------------------------------------------------------------------- */

static void (*thread_body)(void *);
static void *thread_argument;

EMULATOR_OWN static void fiber() {
  thread_body(thread_argument);
  now->state = DONE;
  has_changed = true;
  n_finished++;
  to_scheduler();
  abort();
}

/* Stacks for n threads. A guard page takes two of a process's mappings, of which there are some ten thousands: only those needed have one. */
EMULATOR_OWN static bool reserve(unsigned n) {
  if (!first_stacks) first_stacks = (char *)pages((size_t)MAX_THREADS * STACK_BYTES);
  if (!first_arena) first_arena = (char *)pages(ARENA_BYTES);
  if (!first_stacks || !first_arena) return false;
  stacks = first_stacks, arena = first_arena, stack_bytes = (size_t)MAX_THREADS * STACK_BYTES;
  for (; n_guarded < n; n_guarded++)
    if (mprotect(stacks + (size_t)n_guarded * STACK_BYTES, PAGE_BYTES, PROT_NONE)) return false;
  return true;
}

__attribute__((destructor)) EMULATOR_OWN static void give_back() {
  if (first_stacks) munmap(first_stacks, (size_t)MAX_THREADS * STACK_BYTES);
  if (first_arena) munmap(first_arena, ARENA_BYTES);
  drop_regions(0);
  for (unsigned k = 0; k < MAX_THREADS; k++) free(threads[k].copies);
  free(block_of);
  free(parked);
}

EMULATOR_OWN static void start_fiber(unsigned k) {
  Thread *t = &threads[k];
  char *low = stacks + (size_t)k * STACK_BYTES;
#if defined(__x86_64__)
  /* At its first instruction a function finds the stack 8 bytes off a multiple of 16. */
  void **top = (void **)(low + STACK_BYTES - 64);
  *--top = nullptr;
  *--top = (void *)fiber;
  for (int r = 0; r < 6; r++) *--top = nullptr;
  t->stack_pointer = top;
#else
  getcontext(&t->context);
  t->context.uc_stack.ss_sp = low + PAGE_BYTES;
  t->context.uc_stack.ss_size = STACK_BYTES - PAGE_BYTES;
  t->context.uc_link = nullptr;
  makecontext(&t->context, fiber, 0);
#endif
  t->linear = k;
  t->index = uint3{k % block_size.x, k / block_size.x % block_size.y, k / block_size.x / block_size.y};
  t->state = READY;
  t->n_copies = t->n_done = t->group = 0;
  t->fence = t->found = t->acquired = 0;
  free(t->found_of);
  free(t->seen_of);
  t->found_of = t->seen_of = nullptr;
  t->has_written = false;
}

EMULATOR_OWN static unsigned random_below(unsigned n) {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return (unsigned)((random_state >> 33) % n);
}

EMULATOR_OWN __attribute__((cold)) static void explain_standstill() {
  const Thread *barrier = nullptr, *warp = nullptr;
  for (unsigned k = 0; k < n_threads; k++) {
    if (threads[k].state == AT_BARRIER && !barrier) barrier = &threads[k];
    if (threads[k].state == AT_WARP && !warp) warp = &threads[k];
  }
  if (warp) {
    unsigned missing = warp->exchange->mask & ~warp->exchange->arrived, first = warp->linear / WARP * WARP;
    unsigned lane = (unsigned)__builtin_ctz(missing);
    const Thread &absent = threads[first + lane];
    if (absent.state == DONE)
      fail("lane %u of warp %u has finished, and others wait for it at line %d", lane, first / WARP, warp->line);
    else
      fail("lane %u of warp %u is at line %d, and others wait for it at line %d", lane, first / WARP, absent.line, warp->line);
    return;
  }
  unsigned n_waiting = 0;
  for (unsigned k = 0; k < n_threads; k++) n_waiting += threads[k].state == AT_BARRIER;
  char one[48], other[48];
  for (unsigned k = 0; k < n_threads; k++)
    if (threads[k].state == AT_BARRIER && threads[k].line != barrier->line)
      return fail("divergent barrier: thread %s is at the one in line %d, thread %s at the one in line %d",
                  coordinates(barrier->linear, one), barrier->line, coordinates(k, other), threads[k].line);
  fail("divergent barrier: %u threads wait at line %d, %u have finished without it", n_waiting, barrier->line, n_finished);
}

/* Blocks of this launch that a GPU holds at once, as far as threads and shared memory say. */
EMULATOR_OWN static unsigned long n_resident() {
  unsigned long most = machine.blocks, threads_of = (n_threads + WARP - 1) / WARP * WARP;
  if (machine.threads / threads_of < most) most = machine.threads / threads_of;
  size_t shared_of = most_static_shared + dynamic_shared + RESERVED_SHARED_BYTES;
  if (machine.shared_bytes / shared_of < most) most = machine.shared_bytes / shared_of;
  return (most ? most : 1) * machine.multiprocessors;
}

/* Threads ran, and nothing changed: each waits for what no other does. */
EMULATOR_OWN __attribute__((cold)) static void explain_waiting() {
  char text[48];
  unsigned k = 0;
  while (k + 1 < n_threads && threads[k].state != READY) k++;
  coordinates(k, text);
  if (n_begun < n_blocks)
    fail("no block goes on, and %lu of %lu cannot begin, since %lu are resident at once: thread %s is at line %d, where it "
         "found nothing new in %lu rounds", n_blocks - n_begun, n_blocks, n_resident(), text, threads[k].line, n_idle);
  else
    fail("no %s goes on: thread %s is at line %d, where it found nothing new in %lu rounds",
         are_together ? "block" : "thread", text, threads[k].line, n_idle);
}

/* Let lanes go on that asked which lanes run together: those of a warp that asked at one line, in random order not always all. */
EMULATOR_OWN static bool join_lanes() {
  if (!n_at_mask) return false;
  n_at_mask = 0;
  for (unsigned k = 0; k < n_threads; k++) {
    if (threads[k].state != AT_MASK) continue;
    unsigned first = k / WARP * WARP, mask = 0;
    for (unsigned j = k; j < n_threads && j < first + WARP; j++)
      if (threads[j].state == AT_MASK && threads[j].line == threads[k].line && (j == k || order != RANDOM || random_below(4)))
        mask |= 1u << (j - first);
    for (unsigned j = k; j < n_threads && j < first + WARP; j++)
      if (mask >> (j - first) & 1) threads[j].state = READY, threads[j].mask = mask;
  }
  return true;
}

EMULATOR_OWN static void begin_interval() {
  interval = ++last_interval;
  size_t k = interval - first_of_launch;
  if (k >= n_block_of) {
    n_block_of = 2 * k + 1024;
    block_of = (uint32_t *)realloc(block_of, n_block_of * sizeof(uint32_t));
  }
  block_of[k] = block_number;
}

/* Let the block go on if all of it stands at one barrier. */
EMULATOR_OWN static bool release() {
  int line = threads[0].line;
  for (unsigned k = 0; k < n_threads; k++)
    if (threads[k].state != AT_BARRIER || threads[k].line != line) return false;
  vote_or = 0, vote_and = 1, vote_count = 0;
  uint32_t acquired = 0;
  for (unsigned k = 0; k < n_threads; k++) {
    block_has_written |= threads[k].has_written;
    uint32_t own = threads[k].acquired > threads[k].found ? threads[k].acquired : threads[k].found;
    acquired = acquired > own ? acquired : own;
    if (threads[k].seen_of) join(block_seen_of, threads[k].seen_of, 0);
    if (threads[k].found_of) join(block_seen_of, threads[k].found_of, 0);
  }
  /* What is published next is the whole block's: a fence of one thread does not cover what another wrote without one. */
  uint32_t fence = block_has_written ? 0 : ++n_fences;
  for (unsigned k = 0; k < n_threads; k++) {
    threads[k].state = READY;
    threads[k].fence = fence;
    threads[k].has_written = false;
    int vote = threads[k].vote;
    threads[k].acquired = acquired;
    vote_or |= vote != 0, vote_and &= vote != 0, vote_count += vote != 0;
  }
  begin_interval();
  return true;
}

EMULATOR_OWN static void begin_block() {
  n_finished = 0;
  n_at_mask = 0;
  n_idle = 0;
  block_has_written = false;
  block_serial++;
  block_number = (uint32_t)n_begun++;
  begin_interval();
  memset(warp_time, 0, sizeof warp_time);
  memset(exchanges, 0, sizeof exchanges);
  for (unsigned k = 0; k < n_threads; k++) start_fiber(k);
}

/* Run the block until it ends, or until others have their turn. Returns whether it has ended. */
EMULATOR_OWN static bool run_block() {
  static uint16_t turn[MAX_THREADS];
  for (unsigned k = 0; k < n_threads; k++) turn[k] = (uint16_t)(order == BACKWARD ? n_threads - 1 - k : k);
  int n_waiting = 0;
  unsigned long most = 16ul * WAITING_ROUNDS * (n_parked + 1);
  if (most < MAX_IDLE_ROUNDS) most = MAX_IDLE_ROUNDS;
  while (!message[0]) {
    has_changed = false;
    if (order == RANDOM)
      for (unsigned k = n_threads - 1; k > 0; k--) {
        unsigned other = random_below(k + 1);
        uint16_t kept = turn[k];
        turn[k] = turn[other], turn[other] = kept;
      }
    bool any = false;
    for (unsigned k = 0; k < n_threads && !message[0]; k++) {
      Thread *t = &threads[turn[k]];
      if (t->state != READY) continue;
      any = true;
      resume(t);
    }
    any |= join_lanes();
    n_idle = has_changed ? 0 : n_idle + 1;
    n_waiting = has_changed ? 0 : n_waiting + 1;
    if (n_idle > most) explain_waiting();
    if (message[0]) break;
    if (any) {
      bool are_others = n_parked || n_begun < n_blocks;
      bool is_turn = n_waiting >= WAITING_ROUNDS || (are_together && order == RANDOM && !random_below(4));
      if (are_others && is_turn) return false;
      continue;
    }
    if (n_finished == n_threads) break;
    if (!release()) explain_standstill();
  }
  return true;
}

/* Put the block aside. What its threads hold pointers to comes back to where it was. */
EMULATOR_OWN static void park_block() {
  are_together = true;
  unsigned n_warps = (n_threads + WARP - 1) / WARP;
  Parked *p = (Parked *)calloc(1, sizeof(Parked));
  *p = Parked{block_index, block_number, interval, block_serial, n_finished, n_at_mask, n_regions - n_arrays,
              block_has_written, arena_used, static_shared, stack_bytes, {}, stacks, arena, block_seen_of};
  memcpy(p->warp_time, warp_time, sizeof warp_time);
  p->own = (Region *)malloc((p->n_own + 1) * sizeof(Region));
  memcpy(p->own, regions + n_arrays, p->n_own * sizeof(Region));
  p->threads = (Thread *)malloc(n_threads * sizeof(Thread));
  memcpy(p->threads, threads, n_threads * sizeof(Thread));
  p->exchanges = (Exchange *)malloc(n_warps * sizeof exchanges[0]);
  memcpy(p->exchanges, exchanges, n_warps * sizeof exchanges[0]);
  for (unsigned k = 0; k < n_threads; k++) {
    threads[k].copies = nullptr, threads[k].n_copies_max = 0;
    threads[k].found_of = threads[k].seen_of = nullptr;
  }
  n_regions = n_arrays;
  last_region = 0;
  arena_used = static_shared = 0;
  stacks = arena = nullptr;
  block_seen_of = nullptr;
  if (n_parked == n_parked_max) {
    n_parked_max = n_parked_max ? 2 * n_parked_max : 16;
    parked = (Parked **)realloc(parked, n_parked_max * sizeof(Parked *));
  }
  parked[n_parked++] = p;
}

/* Forget the block: it has ended, and others may need its room. */
EMULATOR_OWN static void leave_block() {
  for (unsigned k = 0; k < n_threads; k++) {
    Thread &t = threads[k];
    free(t.copies);
    free(t.found_of);
    free(t.seen_of);
    t.copies = nullptr, t.n_copies_max = 0;
    t.found_of = t.seen_of = nullptr;
  }
  drop_regions(n_arrays);
  arena_used = static_shared = 0;
  free(block_seen_of);
  block_seen_of = nullptr;
  if (stacks && stacks != first_stacks) munmap(stacks, stack_bytes);
  if (arena && arena != first_arena) munmap(arena, ARENA_BYTES);
  stacks = arena = nullptr;
}

EMULATOR_OWN static void take_up_block(size_t which) {
  Parked *p = parked[which];
  memmove(parked + which, parked + which + 1, (--n_parked - which) * sizeof(Parked *));
  block_index = p->index, block_number = p->number, interval = p->interval, block_serial = p->serial;
  n_finished = p->n_finished, n_at_mask = p->n_at_mask, block_has_written = p->has_written;
  arena_used = p->arena_used, static_shared = p->static_shared, stack_bytes = p->stack_bytes;
  stacks = p->stacks, arena = p->arena, block_seen_of = p->seen_of;
  memcpy(warp_time, p->warp_time, sizeof warp_time);
  memcpy(regions + n_arrays, p->own, p->n_own * sizeof(Region));
  n_regions = n_arrays + p->n_own;
  last_region = 0;
  memcpy(threads, p->threads, n_threads * sizeof(Thread));
  memcpy(exchanges, p->exchanges, (n_threads + WARP - 1) / WARP * sizeof exchanges[0]);
  free(p->own);
  free(p->threads);
  free(p->exchanges);
  free(p);
}

/* Whether a block begins now, or one of those goes on that wait. */
EMULATOR_OWN static bool is_next_new() {
  if (!n_parked || n_begun == n_blocks) return !n_parked;
  if (n_parked >= n_resident()) return false;
  if (order == FORWARD || n_idle >= WAITING_ROUNDS * n_parked) return true;
  return order == RANDOM && random_below(2);
}

/* Where blocks wait for one another each has stacks and shared memory of its own. A first block has found what overflows a stack. */
EMULATOR_OWN static bool has_room() {
  if (stacks) return true;
  bool is_free = true;
  for (size_t k = 0; k < n_parked; k++) is_free &= parked[k]->stacks != first_stacks;
  stack_bytes = (size_t)(is_free ? MAX_THREADS : n_threads) * STACK_BYTES;
  stacks = is_free ? first_stacks : (char *)pages(stack_bytes);
  arena = is_free ? first_arena : (char *)pages(ARENA_BYTES);
  return stacks && arena;
}

EMULATOR_OWN static void forget_waiting() {
  if (!are_together) return;
  while (leave_block(), n_parked) take_up_block(n_parked - 1);
  for (size_t k = 0; k < n_places; k++) free(publications[k].clock_of);
  free(publications);
  publications = nullptr;
  n_publications = n_places = 0;
  are_together = false;
}

/* Run every block of a launch; `body` is the call of the kernel. */
template <class F>
EMULATOR_OWN inline void launch(const char *name, dim3 grid, dim3 block, size_t shared_bytes, const F &body) {
  if (message[0]) return;
  kernel_name = name;
  grid_size = grid, block_size = block, block_index = uint3{0, 0, 0};
  unsigned long n = (unsigned long)block.x * block.y * block.z;
  n_blocks = (unsigned long)grid.x * grid.y * grid.z;
  if (n == 0 || n > MAX_THREADS || block.z > MAX_THREADS_ALONG_Z)
    return fail("a block of %u x %u x %u threads", block.x, block.y, block.z);
  if (n_blocks == 0 || grid.x > 0x7fffffff || grid.y > 65535 || grid.z > 65535)
    return fail("a grid of %u x %u x %u blocks", grid.x, grid.y, grid.z);
  if (!reserve((unsigned)n)) return fail("no memory for %lu stacks", n);
  n_threads = (unsigned)n;
  dynamic_shared = shared_bytes;
  drop_regions(n_arrays);
  arena_used = static_shared = most_static_shared = 0;
  n_begun = 0;
  first_of_launch = last_interval + 1;
  thread_body = [](void *f) { (*(const F *)f)(); };
  thread_argument = (void *)&body;
  /* A random order of blocks: steps of a length that shares no factor with their number. */
  unsigned long step = 1, start = 0;
  if (order == RANDOM) {
    unsigned long a, b, rest;
    do {
      step = 1 + random_below((unsigned)n_blocks);
      for (a = step, b = n_blocks; b; a = b, b = rest) rest = a % b;
    } while (a != 1);
    start = random_below((unsigned)n_blocks);
  }
  while (!message[0] && (n_parked || n_begun < n_blocks)) {
    if (is_next_new()) {
      unsigned long k = n_begun, at = order == FORWARD ? k : order == BACKWARD ? n_blocks - 1 - k : (start + k * step) % n_blocks;
      block_index = uint3{(unsigned)(at % grid.x), (unsigned)(at / grid.x % grid.y), (unsigned)(at / grid.x / grid.y)};
      if (!has_room()) {
        fail("no memory for the stacks of %lu blocks", (unsigned long)n_parked + 1);
        break;
      }
      begin_block();
    } else
      take_up_block(order == RANDOM ? random_below((unsigned)n_parked) : 0);
    bool has_ended = run_block();
    if (static_shared + dynamic_shared > SHARED_BYTES)
      fail("%zu bytes of shared memory, and %d is the most", static_shared + dynamic_shared, (int)SHARED_BYTES);
    if (most_static_shared < static_shared) most_static_shared = static_shared;
    if (!has_ended) park_block();
    else if (are_together) leave_block();
  }
  forget_waiting();
}

/* What the GPU holds at once, of which a launch keeps its blocks. */
EMULATOR_OWN static void on_machine(unsigned multiprocessors, unsigned threads, unsigned blocks, size_t shared_bytes) {
  machine = Machine{multiprocessors, threads, blocks, shared_bytes};
}

/* Nanoseconds of each component in the last call. */
static int64_t component_ns[MAX_COMPONENTS], from_ns;

EMULATOR_OWN static int64_t clock_ns() {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Adds the time since the last launch to that of a component; -1: of none. */
EMULATOR_OWN static inline void took(int component) {
  int64_t now_ns = clock_ns();
  if (component >= 0 && component < MAX_COMPONENTS) component_ns[component] += now_ns - from_ns;
  from_ns = now_ns;
}

/* The arrays of a call, before its launches. */
EMULATOR_OWN static void begin() {
  message[0] = 0;
  memset(component_ns, 0, sizeof component_ns);
  from_ns = clock_ns();
  kernel_name = "the call";
  drop_regions(0);
  n_arrays = 0;
}

EMULATOR_OWN static void array(void *begin, size_t n_bytes, size_t item_bytes, const char *name) {
  Region *r = add_region(begin, n_bytes, granule_of(item_bytes), name, false);
  for (unsigned k = 0; r && k < n_of_kept; k++)
    if (kept[k].begin == r->begin) r->row_bytes = kept[k].row_bytes, r->kept_bytes = kept[k].n_bytes;
  n_arrays = n_regions;
}

EMULATOR_OWN static void end() {
  drop_regions(0);
  n_arrays = 0;
}

/* An argument that is a pointer of whatever type the kernel wants. */
struct Pointer {
  void *p;
  template <class T> EMULATOR_OWN operator T *() const { return (T *)p; }
};

/* ---- waiting ----------------------------------------------------------------------------------------------------------- */

EMULATOR_OWN static inline void wait_at_barrier(int line, int vote) {
  now->line = line;
  now->vote = vote;
  now->state = AT_BARRIER;
  has_changed = true;
  to_scheduler();
}

/* Other threads may run before this one goes on. */
EMULATOR_OWN static inline void give_way(int line) {
  if (!now) return;
  now->line = line;
  to_scheduler();
}

EMULATOR_OWN static inline void fence(int line) {
  give_way(line);
  now->fence = ++n_fences;
  now->has_written = block_has_written = false;
  if (now->acquired < now->found) now->acquired = now->found;
  if (now->found_of) join(now->seen_of, now->found_of, 0);
}

EMULATOR_OWN static inline unsigned active_mask(int line) {
  now->line = line;
  now->state = AT_MASK;
  n_at_mask++;
  to_scheduler();
  return now->mask;
}

/* Give a value to the lanes of `mask` and wait for theirs. */
EMULATOR_OWN static const uint64_t *exchange(unsigned mask, uint64_t value, int line, bool orders_memory = false) {
  unsigned lane = now->linear % WARP, warp = now->linear / WARP;
  unsigned n_lanes = n_threads - warp * WARP;
  unsigned live = n_lanes >= WARP ? mask : mask & ((1u << n_lanes) - 1);
  now->line = line;
  if (!(mask >> lane & 1)) fail("lane %u takes part at line %d and is not in the mask %#x", lane, line, mask);
  Exchange *e = nullptr;
  for (int k = 0; k < MAX_MASKS && !e; k++)
    if (exchanges[warp][k].mask == live) e = &exchanges[warp][k];
  for (int k = 0; k < MAX_MASKS && !e; k++)
    if (!exchanges[warp][k].arrived && !exchanges[warp][k].n_unread) e = &exchanges[warp][k];
  if (!e) fail("more than %d masks in one warp", (int)MAX_MASKS);
  if (e->arrived && e->line != line)
    fail("lanes of warp %u meet at different lines, %d and %d", warp, e->line, line);
  unsigned round = e->generation & 1;
  e->mask = live;
  e->line = line;
  e->value[round][lane] = value;
  e->arrived |= 1u << lane;
  if (e->arrived == live) {
    e->arrived = 0;
    e->generation++;
    e->n_unread = (unsigned)__builtin_popcount(live);
    has_changed = true;
    warp_time[warp] = (uint16_t)(warp_time[warp] + orders_memory);
    for (unsigned k = 0; k < WARP && warp * WARP + k < n_threads; k++) {
      Thread &t = threads[warp * WARP + k];
      if (t.state == AT_WARP && t.exchange == e) t.state = READY;
    }
  } else {
    now->state = AT_WARP;
    now->exchange = e;
    to_scheduler();
  }
  e->n_unread--;
  return e->value[round];
}

/* What another lane gave; all ones, which is NaN, from a lane that does not exist. */
template <class T> EMULATOR_OWN inline T shuffle(unsigned mask, T value, int source, int line) {
  static_assert(sizeof(T) <= 8, "at most eight bytes are exchanged");
  uint64_t bits = 0;
  memcpy(&bits, &value, sizeof(T));
  const uint64_t *all = exchange(mask, bits, line);
  unsigned warp = now->linear / WARP;
  bool exists = warp * WARP + (unsigned)source < n_threads && (mask >> source & 1);
  bits = exists ? all[source] : ~(uint64_t)0;
  memcpy(&value, &bits, sizeof(T));
  return value;
}

EMULATOR_OWN static inline unsigned ballot(unsigned mask, int predicate, int line) {
  const uint64_t *all = exchange(mask, predicate != 0, line);
  unsigned bits = 0, first = now->linear / WARP * WARP;
  for (unsigned k = 0; k < WARP && first + k < n_threads; k++)
    if (mask >> k & 1) bits |= (unsigned)all[k] << k;
  return bits;
}

EMULATOR_OWN static inline unsigned match(unsigned mask, uint64_t value, int line) {
  const uint64_t *all = exchange(mask, value, line);
  unsigned bits = 0, first = now->linear / WARP * WARP;
  for (unsigned k = 0; k < WARP && first + k < n_threads; k++)
    if (mask >> k & 1 && all[k] == value) bits |= 1u << k;
  return bits;
}

/* ---- copies that run beside the thread ---------------------------------------------------------------------------------- */

/* Issued, a copy may write at once; the emulator writes as late as it may: when the thread waits for it. */
EMULATOR_OWN static void copy_async(void *to, const void *from, int n_bytes, int n_valid) {
  if (n_valid < 0 || n_valid > n_bytes) fail("an asynchronous copy of %d of %d bytes", n_valid, n_bytes);
  if (n_valid) access((uintptr_t)from, (unsigned)n_valid, READ, 1);
  if ((uintptr_t)from % (unsigned)n_bytes) fail("an asynchronous copy of %d bytes from a misaligned address", n_bytes);
  access((uintptr_t)to, (unsigned)n_bytes, WRITE, (unsigned)n_bytes);
  if (now->n_copies == now->n_copies_max) {
    now->n_copies_max = now->n_copies_max ? 2 * now->n_copies_max : 16;
    now->copies = (Copy *)realloc(now->copies, (size_t)now->n_copies_max * sizeof(Copy));
  }
  now->copies[now->n_copies++] = Copy{to, from, n_bytes, n_bytes - n_valid, now->group};
}

EMULATOR_OWN static void copy_async_wait(int n_open) {
  Thread *t = now;
  for (; t->n_done < t->n_copies && t->copies[t->n_done].group < t->group - n_open; t->n_done++) {
    const Copy &c = t->copies[t->n_done];
    size_t n_valid = (size_t)(c.n_bytes - c.n_zeros);
    if (n_valid) access((uintptr_t)c.from, (unsigned)n_valid, READ, 1);
    access((uintptr_t)c.to, (unsigned)c.n_bytes, WRITE, 1);
    memcpy(c.to, c.from, n_valid);
    memset((char *)c.to + n_valid, 0, (size_t)c.n_zeros);
  }
}

/* ---- atomics, and strong loads and stores ---------------------------------------------------------------------------------- */

template <class T> EMULATOR_OWN inline void put(T *place, T value) {
  has_changed |= memcmp(place, &value, sizeof(T)) != 0;
  *place = value;
}

template <class T, class F> EMULATOR_OWN inline T update(T *place, int line, F change) {
  give_way(line);
  access((uintptr_t)place, sizeof(T), ATOMIC, sizeof(T));
  T old = *place;
  put(place, change(old));
  return old;
}

/* threadIdx and its kind: members that look themselves up. */
#define EMULATOR_MEMBER(where, m)                                    \
  struct {                                                           \
    EMULATOR_OWN operator unsigned() const { return emulator::where.m; } \
  } m;

struct ThreadIndex {
  EMULATOR_MEMBER(now->index, x) EMULATOR_MEMBER(now->index, y) EMULATOR_MEMBER(now->index, z)
};
struct BlockIndex {
  EMULATOR_MEMBER(block_index, x) EMULATOR_MEMBER(block_index, y) EMULATOR_MEMBER(block_index, z)
};
struct BlockSize {
  EMULATOR_MEMBER(block_size, x) EMULATOR_MEMBER(block_size, y) EMULATOR_MEMBER(block_size, z)
};
struct GridSize {
  EMULATOR_MEMBER(grid_size, x) EMULATOR_MEMBER(grid_size, y) EMULATOR_MEMBER(grid_size, z)
};

} // namespace emulator

static emulator::ThreadIndex threadIdx;
static emulator::BlockIndex blockIdx;
static emulator::BlockSize blockDim;
static emulator::GridSize gridDim;
static const int warpSize = 32;

/* What the compiler calls before each access of a kernel to memory. */
extern "C" {
#define EMULATOR_HOOK(n)                                                                                                     \
  EMULATOR_OWN void __tsan_read##n(void *p) { emulator::access((uintptr_t)p, n, emulator::READ, n); }                        \
  EMULATOR_OWN void __tsan_write##n(void *p) { emulator::access((uintptr_t)p, n, emulator::WRITE, n); }                      \
  EMULATOR_OWN void __tsan_unaligned_read##n(void *p) { emulator::access((uintptr_t)p, n, emulator::READ, 1); }              \
  EMULATOR_OWN void __tsan_unaligned_write##n(void *p) { emulator::access((uintptr_t)p, n, emulator::WRITE, 1); }
#pragma GCC visibility push(hidden)
EMULATOR_HOOK(1)
EMULATOR_HOOK(2)
EMULATOR_HOOK(4)
EMULATOR_HOOK(8)
EMULATOR_HOOK(16)
EMULATOR_OWN void __tsan_read_range(void *p, long n) { emulator::access((uintptr_t)p, (unsigned)n, emulator::READ, 1); }
EMULATOR_OWN void __tsan_write_range(void *p, long n) {
  emulator::access((uintptr_t)p, (unsigned)n, emulator::WRITE, 1);
}
EMULATOR_OWN void *__tsan_memcpy(void *to, const void *from, unsigned long n) {
  __tsan_read_range((void *)from, (long)n);
  __tsan_write_range(to, (long)n);
  return memcpy(to, from, n);
}
EMULATOR_OWN void *__tsan_memset(void *to, int value, unsigned long n) {
  __tsan_write_range(to, (long)n);
  return memset(to, value, n);
}
EMULATOR_OWN void __tsan_init() {}
EMULATOR_OWN void __tsan_func_entry(void *) {}
EMULATOR_OWN void __tsan_func_exit(void *) {}

/* What it calls where an index is outside the declared bounds of an array. */
struct EmulatorPlace {
  const char *file;
  uint32_t line, column;
};
EMULATOR_OWN void __ubsan_handle_out_of_bounds(void *place, void *index) {
  unsigned line = ((const EmulatorPlace *)place)->line;
  if (emulator::now) emulator::fail("index %ld at line %u is out of bounds of its array", (long)index, line);
}
/* What it calls where a pointer is not aligned as its type wants. */
EMULATOR_OWN void __ubsan_handle_type_mismatch_v1(void *place, void *) {
  unsigned line = ((const EmulatorPlace *)place)->line;
  if (emulator::now) emulator::fail("a vector at line %u is at a misaligned address", line);
}
#pragma GCC visibility pop

/* Of the last call: what went wrong, or null. */
EMULATOR_OWN const char *emulator_error() { return emulator::message[0] ? emulator::message : nullptr; }

/* And the nanoseconds of a component in it; -1: this many are not timed. */
EMULATOR_OWN int64_t emulator_component_ns(int component) {
  return component < emulator::MAX_COMPONENTS ? emulator::component_ns[component] : -1;
}

/* From the next call on, nobody may write the first bytes of each row of the array that begins here; null: all may be written. */
EMULATOR_OWN void emulator_keep(void *begin, size_t row_bytes, size_t n_bytes) {
  if (!begin) emulator::n_of_kept = 0;
  else if (emulator::n_of_kept < emulator::MAX_KEPT)
    emulator::kept[emulator::n_of_kept++] = emulator::Kept{(uintptr_t)begin, row_bytes, n_bytes};
}

/* In which order threads and blocks run in the next calls: 0 forward, 1 backward, 2 random. */
EMULATOR_OWN void emulator_set_order(int order, uint64_t seed) {
  emulator::order = (emulator::Order)order;
  emulator::random_state = seed * 0x9e3779b97f4a7c15u + 0x2545f4914f6cdd1du;
}
}

/* ---- the functions of CUDA ---------------------------------------------------------------------------------------------- */

#define EMULATOR_LINE int line = __builtin_LINE()

EMULATOR_OWN inline void __syncthreads(EMULATOR_LINE) { emulator::wait_at_barrier(line, 0); }
EMULATOR_OWN inline int __syncthreads_or(int p, EMULATOR_LINE) {
  emulator::wait_at_barrier(line, p);
  return emulator::vote_or;
}
EMULATOR_OWN inline int __syncthreads_and(int p, EMULATOR_LINE) {
  emulator::wait_at_barrier(line, p);
  return emulator::vote_and;
}
EMULATOR_OWN inline int __syncthreads_count(int p, EMULATOR_LINE) {
  emulator::wait_at_barrier(line, p);
  return emulator::vote_count;
}
EMULATOR_OWN inline void __syncwarp(unsigned mask = 0xffffffffu, EMULATOR_LINE) {
  emulator::exchange(mask, 0, line, true);
}
EMULATOR_OWN inline void __threadfence(EMULATOR_LINE) { emulator::fence(line); }
EMULATOR_OWN inline void __threadfence_block() {}

template <class T> EMULATOR_OWN inline T __shfl_sync(unsigned mask, T v, int source, int width = 32, EMULATOR_LINE) {
  int lane = (int)(emulator::now->linear % 32);
  return emulator::shuffle(mask, v, (lane & ~(width - 1)) | (source & (width - 1)), line);
}
template <class T> EMULATOR_OWN inline T __shfl_down_sync(unsigned mask, T v, unsigned by, int width = 32, EMULATOR_LINE) {
  int lane = (int)(emulator::now->linear % 32), other = lane + (int)by;
  return emulator::shuffle(mask, v, (other & ~(width - 1)) == (lane & ~(width - 1)) ? other : lane, line);
}
template <class T> EMULATOR_OWN inline T __shfl_up_sync(unsigned mask, T v, unsigned by, int width = 32, EMULATOR_LINE) {
  int lane = (int)(emulator::now->linear % 32), other = lane - (int)by;
  return emulator::shuffle(mask, v, other >= (lane & ~(width - 1)) ? other : lane, line);
}
template <class T> EMULATOR_OWN inline T __shfl_xor_sync(unsigned mask, T v, int bits, int width = 32, EMULATOR_LINE) {
  int lane = (int)(emulator::now->linear % 32), other = lane ^ bits;
  return emulator::shuffle(mask, v, (other & ~(width - 1)) <= (lane & ~(width - 1)) ? other : lane, line);
}
EMULATOR_OWN inline unsigned __ballot_sync(unsigned mask, int p, EMULATOR_LINE) { return emulator::ballot(mask, p, line); }
EMULATOR_OWN inline unsigned __activemask(EMULATOR_LINE) { return emulator::active_mask(line); }
template <class T> EMULATOR_OWN inline unsigned __match_any_sync(unsigned mask, T v, EMULATOR_LINE) {
  uint64_t bits = 0;
  memcpy(&bits, &v, sizeof(T));
  return emulator::match(mask, bits, line);
}
EMULATOR_OWN inline int __any_sync(unsigned mask, int p, EMULATOR_LINE) { return emulator::ballot(mask, p, line) != 0; }
EMULATOR_OWN inline int __all_sync(unsigned mask, int p, EMULATOR_LINE) { return emulator::ballot(mask, !p, line) == 0; }

#define EMULATOR_ATOMIC(name, T, change)                                                \
  EMULATOR_OWN inline T name(T *p, T v, EMULATOR_LINE) {                                \
    return emulator::update(p, line, [v](T old) { return (T)(change); });               \
  }
#define EMULATOR_ATOMICS(T) EMULATOR_ATOMIC(atomicAdd, T, old + v) EMULATOR_ATOMIC(atomicExch, T, (void(old), v))
#define EMULATOR_INTEGER_ATOMICS(T)                                                     \
  EMULATOR_ATOMICS(T)                                                                   \
  EMULATOR_ATOMIC(atomicMax, T, old > v ? old : v)                                      \
  EMULATOR_ATOMIC(atomicMin, T, old < v ? old : v)                                      \
  EMULATOR_ATOMIC(atomicOr, T, old | v)                                                 \
  EMULATOR_ATOMIC(atomicAnd, T, old & v)                                                \
  EMULATOR_ATOMIC(atomicXor, T, old ^ v)                                                \
  EMULATOR_OWN inline T atomicCAS(T *p, T expected, T v, EMULATOR_LINE) {               \
    return emulator::update(p, line, [=](T old) { return old == expected ? v : old; }); \
  }
EMULATOR_ATOMICS(float)
EMULATOR_ATOMICS(double)
EMULATOR_INTEGER_ATOMICS(int)
EMULATOR_INTEGER_ATOMICS(unsigned)
EMULATOR_INTEGER_ATOMICS(unsigned long long)
EMULATOR_INTEGER_ATOMICS(long long)
EMULATOR_OWN inline unsigned atomicInc(unsigned *p, unsigned most, EMULATOR_LINE) {
  return emulator::update(p, line, [most](unsigned old) { return old >= most ? 0u : old + 1; });
}

/* Loads and stores of what other threads change meanwhile, volatile on a GPU. */
template <class T> EMULATOR_OWN inline T load_strong(const T *p, EMULATOR_LINE) {
  emulator::give_way(line);
  emulator::access((uintptr_t)p, sizeof(T), emulator::STRONG_READ, sizeof(T));
  return *p;
}
template <class T, class V> EMULATOR_OWN inline void store_strong(T *p, V v, EMULATOR_LINE) {
  emulator::give_way(line);
  emulator::access((uintptr_t)p, sizeof(T), emulator::STRONG_WRITE, sizeof(T));
  emulator::put(p, (T)v);
}

/* No thread of a launch may write what another one, or itself, reads so. */
template <class T> EMULATOR_OWN inline T __ldg(const T *p) {
  emulator::access((uintptr_t)p, sizeof(T), emulator::READ_ONLY, alignof(T));
  return *p;
}

/* Other hints about caches change nothing here. */
#define EMULATOR_LOAD(name) template <class T> __forceinline__ T name(const T *p) { return *p; }
#define EMULATOR_STORE(name) template <class T> __forceinline__ void name(T *p, T v) { *p = v; }
EMULATOR_LOAD(__ldcg) EMULATOR_LOAD(__ldca) EMULATOR_LOAD(__ldcs) EMULATOR_LOAD(__ldlu)
EMULATOR_LOAD(__ldcv) EMULATOR_STORE(__stcs) EMULATOR_STORE(__stcg) EMULATOR_STORE(__stwt) EMULATOR_STORE(__stwb)

EMULATOR_OWN inline size_t __cvta_generic_to_shared(const void *p) { return (size_t)((const char *)p - emulator::arena); }

/* The wrappers that the text has for cp.async on a GPU. */
#define EMULATOR_COPY(n)                                                             \
  EMULATOR_OWN inline void copy_async##n(void *to, const void *from, int n_valid = n) { \
    emulator::copy_async(to, from, n, n_valid);                                      \
  }
EMULATOR_COPY(4) EMULATOR_COPY(8) EMULATOR_COPY(16)
EMULATOR_OWN inline void copy_async_commit() { emulator::now->group++; }
template <int n> EMULATOR_OWN inline void copy_async_wait() { emulator::copy_async_wait(n); }

#define EMULATOR_MIN_MAX(T)                                \
  inline constexpr T min(T a, T b) { return b < a ? b : a; } \
  inline constexpr T max(T a, T b) { return a < b ? b : a; }
EMULATOR_MIN_MAX(int) EMULATOR_MIN_MAX(unsigned) EMULATOR_MIN_MAX(long) EMULATOR_MIN_MAX(unsigned long)
EMULATOR_MIN_MAX(long long) EMULATOR_MIN_MAX(unsigned long long)
inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }
inline double min(double a, double b) { return fmin(a, b); }
inline double max(double a, double b) { return fmax(a, b); }

inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dsub_rn(double a, double b) { return a - b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline float __fdividef(float a, float b) { return a / b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fsqrt_rn(float x) { return sqrtf(x); }
inline float __expf(float x) { return expf(x); }
inline float __logf(float x) { return logf(x); }
inline float __saturatef(float x) { return x < 0.0f ? 0.0f : x > 1.0f ? 1.0f : x; }
inline int __popc(unsigned x) {
  int n = 0;
  for (; x; x &= x - 1) n++;
  return n;
}
inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
inline int __ffs(int x) { return __builtin_ffs(x); }
template <class To, class From> EMULATOR_OWN inline To emulator_bits(From x) {
  To y;
  memcpy(&y, &x, sizeof y);
  return y;
}
inline int __float_as_int(float x) { return emulator_bits<int>(x); }
inline unsigned __float_as_uint(float x) { return emulator_bits<unsigned>(x); }
inline float __int_as_float(int x) { return emulator_bits<float>(x); }
inline float __uint_as_float(unsigned x) { return emulator_bits<float>(x); }
inline long long __double_as_longlong(double x) { return emulator_bits<long long>(x); }
inline double __longlong_as_double(long long x) { return emulator_bits<double>(x); }
