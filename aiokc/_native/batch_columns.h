/* Columns in memory, in the layout of Apache Arrow, and how they are handed over: Arrow's C data interface.
 *
 * A Batch is filled by columns.c and then never changed. Whoever it is handed to holds a reference to it, for each of
 * its arrays: so buffers are shared, and freed with the last of them, by whatever thread that is in.
 */

#ifndef AIOKC_ARROW_H
#define AIOKC_ARROW_H

#include "module.h"

#if defined(__GNUC__)
#pragma GCC visibility push(hidden)
#endif

/* The ABI, as https://arrow.apache.org/docs/format/CDataInterface.html and CStreamInterface.html define it */

#define ARROW_FLAG_NULLABLE 2

struct ArrowSchema {
    const char *format;
    const char *name;
    const char *metadata;
    int64_t flags;
    int64_t n_children;
    struct ArrowSchema **children;
    struct ArrowSchema *dictionary;
    void (*release)(struct ArrowSchema *);
    void *private_data;
};

struct ArrowArray {
    int64_t length;
    int64_t null_count;
    int64_t offset;
    int64_t n_buffers;
    int64_t n_children;
    const void **buffers;
    struct ArrowArray **children;
    struct ArrowArray *dictionary;
    void (*release)(struct ArrowArray *);
    void *private_data;
};

struct ArrowArrayStream {
    int (*get_schema)(struct ArrowArrayStream *, struct ArrowSchema *);
    int (*get_next)(struct ArrowArrayStream *, struct ArrowArray *);
    const char *(*get_last_error)(struct ArrowArrayStream *);
    void (*release)(struct ArrowArrayStream *);
    void *private_data;
};

/* Buffers that grow */

typedef struct {
    uint8_t *data; /* never NULL */
    int64_t size;
    int64_t room;
} Buffer;

int grow(Buffer *buffer, int64_t more);

/* False where there is no memory, without an exception: this needs no GIL. */
static inline int make_room(Buffer *buffer, int64_t more) {
    return more <= buffer->room - buffer->size || grow(buffer, more);
}

/* Arrays: a column, or a part of a nested one */

#define MOST_CHILDREN 9
#define MOST_NODES 13 /* all columns, the parts of headers, and the batch itself */

enum { VALIDITY, DATA, CONTENT = 2, MOST_BUFFERS }; /* where there is CONTENT, DATA are its 32-bit offsets */

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

/* A column with offsets has one more of them than it has elements. */
static inline int has_offsets(const Node *node) {
    return node->shape->buffers == 3 || node->shape->format[1] == 'l';
}

typedef struct {
    long references;
    int node_count;
    Node nodes[MOST_NODES]; /* the first one is the batch as a whole */
} Batch;

/* An empty batch of these columns; NULL where there is no memory, without an exception. */
Batch *new_batch(const Shape *const *columns, int count);
/* Give back what its buffers do not use, if that is most of it. */
void trim_batch(Batch *batch);
/* One holder more, or less. */
void hold_batch(Batch *batch);
void drop_batch(Batch *batch);
void free_spare_batches(void);
int64_t used_bytes(const Batch *batch);

/* Add the type of arrow_export.c to the state; wrap_batch makes one of it, which takes the reference. */
int add_arrow(PyObject *module, State *state);
PyObject *wrap_batch(const State *state, Batch *batch);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif

#endif
