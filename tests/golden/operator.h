/* operator: a * / b
 *
 * Arrays are contiguous, the last axis innermost, and begin at a multiple of their element's size;
 * V_OPERATOR__ALIGNMENT is fastest, and what the workspace must have. What is written overlaps nothing else.
 * Nothing is checked: index arrays must hold indices that are in range.
 * Up to 1 threads take part. Calls may run at the same time, each with a workspace
 * and written arrays of its own.
 */
#ifndef V_OPERATOR__H
#define V_OPERATOR__H

#include <stdint.h>

#define V_OPERATOR__WORKSPACE_BYTES 0
#define V_OPERATOR__ALIGNMENT 64

#ifdef __cplusplus
extern "C" {
#endif

/* What is linked: args[k] points to array k, or to the value of a scalar. */
void renamed(void **args);

static inline void v_operator_(
    void) {
    void *args[] = {0};
    renamed(args);
}

#ifdef __cplusplus
}
#endif

#endif
