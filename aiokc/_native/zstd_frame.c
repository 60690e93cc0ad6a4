/* Frames of zstd: their headers and those of their blocks are read here; the library does the rest.
 *
 * A frame is magic, a header that says what follows in it, blocks, and a checksum (if the header says so). A block is
 * three bytes (whether it is the last, its type, its size) and its content. Numbers are little-endian. */

#include "compressed.h"

#define MAGIC 0xFD2FB528u

/* Of the frame's first byte behind the magic */
#define CONTENT_SIZE_SHIFT 6
#define SINGLE_SEGMENT 0x20
#define CHECKSUM 0x04
#define REFUSED 0x1B /* a dictionary, and bits that mean nothing yet */

enum { RAW, REPEATED, COMPRESSED };

#define LARGEST_BLOCK (128 << 10)
#define LARGEST_WINDOW (128 << 20) /* a stream's: libzstd refuses more, unless it is told otherwise */

typedef struct {
    int64_t at;           /* where the first block begins */
    int64_t window;
    int64_t content_size; /* -1: not stated */
    int has_checksum;
} Frame;

static int64_t window_of(int descriptor) {
    int64_t size = (int64_t)1 << (10 + (descriptor >> 3));
    return size + size / 8 * (descriptor & 7);
}

static int read_frame(Packed packed, Frame *frame) {
    static const int widths[] = {0, 2, 4, 8};
    if (packed.size < 6 || read_little(packed.data, 4) != MAGIC || packed.data[4] & REFUSED)
        return 0;
    int flags = packed.data[4], is_single = flags & SINGLE_SEGMENT;
    int width = widths[flags >> CONTENT_SIZE_SHIFT];
    if (width == 0 && is_single)
        width = 1;
    *frame = (Frame){.at = is_single ? 5 : 6, .content_size = -1, .has_checksum = flags & CHECKSUM};
    if (packed.size - frame->at < width)
        return 0;
    if (width > 0 && !read_content_size(packed.data + frame->at, width, &frame->content_size))
        return 0;
    if (width == 2)
        frame->content_size += 256;
    frame->window = is_single ? frame->content_size : window_of(packed.data[5]);
    frame->at += width;
    return frame->window <= LARGEST_WINDOW;
}

int64_t most_of_zstd(Packed packed, int64_t *likely) {
    Frame frame;
    if (!read_frame(packed, &frame))
        return -1;
    int64_t at = frame.at, most = 0, largest = Py_MIN(frame.window, LARGEST_BLOCK);
    for (int is_last = 0; !is_last;) {
        if (packed.size - at < 3)
            return -1;
        uint32_t header = (uint32_t)read_little(packed.data + at, 3);
        int type = header >> 1 & 3;
        int64_t size = header >> 3;
        is_last = header & 1;
        at += 3;
        if (type > COMPRESSED || size > largest || packed.size - at < (type == REPEATED ? 1 : size))
            return -1;
        most += type == COMPRESSED ? largest : size;
        at += type == REPEATED ? 1 : size;
    }
    if (at + (frame.has_checksum ? 4 : 0) != packed.size || frame.content_size > most)
        return -1;
    if (frame.content_size >= 0)
        most = frame.content_size;
    *likely = frame.content_size >= 0 ? most : Py_MIN(most, likely_size(packed));
    return most;
}

int64_t unpack_zstd(CodecLibrary *library, Packed packed, uint8_t *out, int64_t room) {
    Frame frame;
    if (!read_frame(packed, &frame) || frame.content_size > frame.window)
        return -1;
    void *context = EXCHANGE(&library->spare, NULL);
    if (context == NULL && (context = library->zstd_create()) == NULL)
        return -1;
    size_t size = library->zstd_decompress(context, out, (size_t)room, packed.data, (size_t)packed.size);
    context = EXCHANGE(&library->spare, context);
    if (context != NULL)
        library->zstd_free(context); /* another thread has given its own back meanwhile */
    /* What is longer than its window may refer to what a stream has forgotten: a stream decides. */
    return library->zstd_is_error(size) || (int64_t)size > frame.window ? -1 : (int64_t)size;
}
