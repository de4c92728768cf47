/* gemver: B = A + u1 v1' + u2 v2'; x = beta B'y + z; w = alpha B x
 *
 * Arrays are contiguous, the last axis innermost, and begin at a multiple of their element's size;
 * GEMVER_ALIGNMENT is fastest, and what the workspace must have. What is written overlaps nothing else.
 * Nothing is checked: index arrays must hold indices that are in range.
 * Up to 4 threads take part. Calls may run at the same time, each with a workspace
 * and written arrays of its own.
 */
#ifndef GEMVER_H
#define GEMVER_H

#include <stdint.h>

#define GEMVER_WORKSPACE_BYTES 17984
#define GEMVER_ALIGNMENT 64

#ifdef __cplusplus
extern "C" {
#endif

/* What is linked: args[k] points to array k, or to the value of a scalar. */
void run_sequence(void **args);

static inline void gemver(
    const float *a,    /* 120 x 96, read */
    const float *u1,   /* 120, read */
    const float *v1,   /* 96, read */
    const float *u2,   /* 120, read */
    const float *v2,   /* 96, read */
    const float *y,    /* 120, read */
    const float *z,    /* 96, read */
    float *b,          /* 120 x 96, written; what it held before does not matter */
    float *x,          /* 96, written; what it held before does not matter */
    float *w,          /* 120, written; what it held before does not matter */
    float alpha,       /* by value */
    float beta,        /* by value */
    void *workspace) { /* GEMVER_WORKSPACE_BYTES, of any contents, for this call alone */
    void *args[] = {(void *)a, (void *)u1, (void *)v1, (void *)u2, (void *)v2, (void *)y, (void *)z, (void *)b, (void *)x, (void *)w, &alpha, &beta, workspace};
    run_sequence(args);
}

#ifdef __cplusplus
}
#endif

#endif
