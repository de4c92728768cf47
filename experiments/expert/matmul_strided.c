/* C = A B with the elements of A 32 apart: gathered while A is packed. */
#define STRIDE 32
#define ENTRY matmul_strided
#include "matmul.c"
