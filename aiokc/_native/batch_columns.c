/* The memory of a batch of columns. It grows while rows are appended, is shared by all exported arrays, and is used
 * again once the last reference is dropped. That may happen in any thread, without the GIL. */

#include "batch_columns.h"

#if defined(_MSC_VER)
#include <intrin.h>
#define COUNT(counter, change) (_InterlockedExchangeAdd(counter, change) + (change))
#else
#define COUNT(counter, change) __atomic_add_fetch(counter, change, __ATOMIC_ACQ_REL)
#endif

#define LEAST_ROOM 64

/* Batches without references are kept for the next ones of the same columns, because new memory costs a page fault for
 * every 4 KiB: at most SPARE_BATCHES, none larger than LARGEST_SPARE bytes. Nor smaller than LEAST_SPARE: a builder that
 * is done leaves behind an empty batch, and those would soon take all places. */
#define SPARE_BATCHES 4
#define LEAST_SPARE (64 << 10)
#define LARGEST_SPARE (12 << 20)

/* A batch that is larger than SMALL and mostly unused is trimmed before it is handed out, if those that still have a
 * holder hold more than LOOSE unused bytes together. An application that is done with a batch before it takes some more
 * gets none that is trimmed: the next batch would have to grow again, into new memory. */
#define SMALL (1 << 20)
#define LOOSE (16 << 20)

static Batch *spare[SPARE_BATCHES];
static long loose;

int grow(Buffer *buffer, int64_t more) {
    int64_t room = Py_MAX(buffer->size + more, Py_MAX(2 * buffer->room, LEAST_ROOM));
    uint8_t *data = more > INT64_MAX / 4 ? NULL : PyMem_RawRealloc(buffer->data, (size_t)room);
    if (data == NULL)
        return 0;
    buffer->data = data;
    buffer->room = room;
    return 1;
}

static Node *new_node(Batch *batch, const Shape *shape) {
    Node *node = &batch->nodes[batch->node_count++];
    node->shape = shape;
    for (int index = VALIDITY; index < shape->buffers; index++) {
        if (!grow(&node->buffers[index], LEAST_ROOM))
            return NULL;
    }
    return node;
}

static Node *add_node(Batch *batch, Node *parent, const Shape *shape) {
    Node *node = new_node(batch, shape);
    for (int index = 0; node != NULL && shape->children[index] != NULL; index++) {
        if (add_node(batch, node, shape->children[index]) == NULL)
            return NULL;
    }
    if (node != NULL)
        parent->children[parent->child_count++] = node;
    return node;
}

static void free_batch(Batch *batch) {
    for (int index = 0; batch != NULL && index < batch->node_count; index++) {
        for (int number = 0; number < MOST_BUFFERS; number++)
            PyMem_RawFree(batch->nodes[index].buffers[number].data);
    }
    PyMem_RawFree(batch);
}

static Batch *fresh_batch(const Shape *const *columns, int count) {
    static const Shape shape = {.name = "", .format = "+s", .buffers = 1};
    Batch *batch = PyMem_RawCalloc(1, sizeof(Batch));
    int is_whole = batch != NULL && new_node(batch, &shape) != NULL;
    for (int index = 0; is_whole && index < count; index++)
        is_whole = add_node(batch, batch->nodes, columns[index]) != NULL;
    if (is_whole)
        return batch;
    free_batch(batch);
    return NULL;
}

static int has_columns(const Batch *batch, const Shape *const *columns, int count) {
    int is_same = batch->nodes[0].child_count == count;
    for (int index = 0; is_same && index < count; index++)
        is_same = batch->nodes[0].children[index]->shape == columns[index];
    return is_same;
}

static Batch *spare_batch(const Shape *const *columns, int count) {
    for (int index = 0; index < SPARE_BATCHES; index++) {
        Batch *batch = EXCHANGE(&spare[index], NULL);
        if (batch != NULL && has_columns(batch, columns, count))
            return batch;
        free_batch(batch); /* a spare batch of other columns, which are probably not read any more */
    }
    return NULL;
}

/* Keep the batch for the next one. If there are SPARE_BATCHES already, the oldest is freed. */
static void keep_spare(Batch *batch) {
    for (int index = 0; batch != NULL && index < SPARE_BATCHES; index++)
        batch = EXCHANGE(&spare[index], batch);
    free_batch(batch);
}

void free_spare_batches(void) {
    for (int index = 0; index < SPARE_BATCHES; index++)
        free_batch(EXCHANGE(&spare[index], NULL));
}

Batch *new_batch(const Shape *const *columns, int count) {
    Batch *batch = spare_batch(columns, count);
    if (batch == NULL)
        batch = fresh_batch(columns, count);
    if (batch == NULL)
        return NULL;
    batch->references = 1;
    for (int index = 0; index < batch->node_count; index++) {
        Node *node = &batch->nodes[index];
        node->length = node->nulls = 0;
        for (int number = 0; number < MOST_BUFFERS; number++)
            node->buffers[number].size = 0;
        if (has_offsets(node)) {
            memset(node->buffers[DATA].data, 0, sizeof(int32_t));
            node->buffers[DATA].size = sizeof(int32_t);
        }
    }
    return batch;
}

static int64_t room_of(const Batch *batch) {
    int64_t sum = 0;
    for (int index = 0; index < batch->node_count; index++) {
        for (int number = 0; number < MOST_BUFFERS; number++)
            sum += batch->nodes[index].buffers[number].room;
    }
    return sum;
}

void hold_batch(Batch *batch) {
    COUNT(&batch->references, 1);
}

void drop_batch(Batch *batch) {
    if (batch == NULL || COUNT(&batch->references, -1) > 0)
        return;
    COUNT(&loose, -batch->loose);
    batch->loose = 0;
    int64_t room = room_of(batch);
    if (room >= LEAST_SPARE && room <= LARGEST_SPARE)
        keep_spare(batch);
    else
        free_batch(batch);
}

void trim_batch(Batch *batch) {
    int64_t room = room_of(batch), unused = room - used_bytes(batch);
    if (room <= Py_MAX(SMALL, 4 * (room - unused)))
        return;
    if (unused <= LOOSE) {
        batch->loose = (long)unused;
        if (COUNT(&loose, batch->loose) <= LOOSE)
            return;
        COUNT(&loose, -batch->loose);
        batch->loose = 0;
    }
    for (int index = 0; index < batch->node_count; index++) {
        for (int number = 0; number < batch->nodes[index].shape->buffers; number++) {
            Buffer *buffer = &batch->nodes[index].buffers[number];
            int64_t used = number == VALIDITY ? (batch->nodes[index].length + 7) / 8 : buffer->size;
            used = Py_MAX(used, LEAST_ROOM);
            uint8_t *data = used < buffer->room ? PyMem_RawRealloc(buffer->data, (size_t)used) : NULL;
            if (data != NULL) {
                buffer->data = data;
                buffer->room = used;
            }
        }
    }
}

int64_t used_bytes(const Batch *batch) {
    int64_t sum = 0;
    for (int index = 0; index < batch->node_count; index++) {
        const Node *node = &batch->nodes[index];
        sum += (node->nulls ? (node->length + 7) / 8 : 0) + node->buffers[DATA].size + node->buffers[CONTENT].size;
    }
    return sum;
}
