/* Columns in memory, in the layout of Apache Arrow.
 *
 * The builder fills a Batch and never changes it afterwards. Each exported array holds a reference to it: so all
 * share the buffers, and the last reference frees them, in whatever thread it is dropped.
 */

#ifndef AIOKC_ARROW_H
#define AIOKC_ARROW_H

#include "arrow_abi.h"
#include "module.h"

#if defined(__GNUC__)
#pragma GCC visibility push(hidden)
#endif

/* Buffers that grow */

typedef struct {
    uint8_t *data; /* never NULL */
    int64_t size;
    int64_t room;
} Buffer;

int grow(Buffer *buffer, int64_t more);

/* Make room for ``more`` bytes. False: there is no memory. It sets no exception, so it needs no GIL. */
static inline int make_room(Buffer *buffer, int64_t more) {
    return more <= buffer->room - buffer->size || grow(buffer, more);
}

/* Nodes: each is a column, or a part of a nested column */

#define MOST_CHILDREN 9
#define MOST_NODES 13 /* all columns, the parts of headers, and the batch itself */

enum { VALIDITY, DATA, CONTENT = 2, MOST_BUFFERS }; /* with CONTENT, DATA holds its 32-bit offsets */

typedef struct Shape {
    const char *name;
    const char *format;
    int buffers;
    int width; /* of one element of DATA, in bytes */
    const struct Shape *children[3];
} Shape;

typedef struct Node {
    const Shape *shape;
    int64_t length;
    int64_t nulls;
    Buffer buffers[MOST_BUFFERS];
    int child_count;
    struct Node *children[MOST_CHILDREN];
} Node;

/* Whether DATA holds offsets: these are one more than the elements. */
static inline int has_offsets(const Node *node) {
    return node->shape->buffers == 3 || node->shape->format[1] == 'l';
}

typedef struct {
    long references;
    long loose; /* bytes of room that it has been handed out with, unused */
    int node_count;
    Node nodes[MOST_NODES]; /* the first node is the batch itself */
} Batch;

/* Return an empty batch of these columns. NULL, without an exception: there is no memory. */
Batch *new_batch(const Shape *const *columns, int count);
/* Give back the memory that the batch's buffers do not use, if that is most of it, and other batches hold much. */
void trim_batch(Batch *batch);
/* Add or drop a reference. */
void hold_batch(Batch *batch);
void drop_batch(Batch *batch);
void free_spare_batches(void);
int64_t used_bytes(const Batch *batch);

/* Add the type of arrow_export.c to the state. wrap_batch returns an object of it, which takes the reference over. */
int add_arrow(PyObject *module, State *state);
PyObject *wrap_batch(const State *state, Batch *batch);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif

#endif
