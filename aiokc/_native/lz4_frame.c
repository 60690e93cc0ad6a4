/* Frames of lz4: their headers and checksums are read here, and the library unpacks the blocks.
 *
 * A frame is magic, flags, block descriptor, the size of the content (if the flags say so), a checksum of these,
 * blocks, an end mark, and a checksum of the content (if the flags say so). Numbers are little-endian. */

#include <string.h>

#include "compressed.h"

#define MAGIC 0x184D2204u

/* Of the flags: version 1 with independent blocks, as Java requires it, and what may be there besides. */
#define INDEPENDENT 0x60
#define BLOCK_CHECKSUM 0x10
#define CONTENT_SIZE 0x08
#define CONTENT_CHECKSUM 0x04

#define FLAGS_AT 4
#define STORED 0x80000000u /* of a block's size: the block is not compressed */
#define BEST_RATIO 255     /* a byte of a match's length stands for at most 255 bytes */

/* xxHash32 */

#define PRIME1 2654435761u
#define PRIME2 2246822519u
#define PRIME3 3266489917u
#define PRIME4 668265263u
#define PRIME5 374761393u

static uint32_t rotated(uint32_t number, int bits) {
    return number << bits | number >> (32 - bits);
}

static uint32_t hashed(const uint8_t *data, int64_t size) {
    const uint8_t *at = data, *end = data + size;
    uint32_t hash = PRIME5;
    if (size >= 16) {
        uint32_t lanes[4] = {PRIME1 + PRIME2, PRIME2, 0, 0 - PRIME1};
        for (; end - at >= 16; at += 16) {
            for (int lane = 0; lane < 4; lane++)
                lanes[lane] = rotated(lanes[lane] + (uint32_t)read_little(at + 4 * lane, 4) * PRIME2, 13) * PRIME1;
        }
        hash = rotated(lanes[0], 1) + rotated(lanes[1], 7) + rotated(lanes[2], 12) + rotated(lanes[3], 18);
    }
    hash += (uint32_t)size;
    for (; end - at >= 4; at += 4)
        hash = rotated(hash + (uint32_t)read_little(at, 4) * PRIME3, 17) * PRIME4;
    for (; at < end; at++)
        hash = rotated(hash + *at * PRIME5, 11) * PRIME1;
    hash = (hash ^ hash >> 15) * PRIME2;
    hash = (hash ^ hash >> 13) * PRIME3;
    return hash ^ hash >> 16;
}

/* The frame */

typedef struct {
    Packed packed;
    int64_t at;
    int flags;
    int64_t block_size;   /* the most that a block holds */
    int64_t content_size; /* -1: not stated */
} Frame;

typedef struct {
    const uint8_t *data;
    int64_t size;
    int is_stored;
} Block;

static int read_frame(Packed packed, Frame *frame) {
    if (packed.size < FLAGS_AT + 3 || read_little(packed.data, 4) != MAGIC)
        return 0;
    const uint8_t *descriptor = packed.data + FLAGS_AT;
    int flags = descriptor[0], block = descriptor[1];
    int64_t size = flags & CONTENT_SIZE ? 10 : 2;
    if ((flags & ~(BLOCK_CHECKSUM | CONTENT_SIZE | CONTENT_CHECKSUM)) != INDEPENDENT || block & 0x8F || block < 0x40 ||
        packed.size < FLAGS_AT + size + 1 || descriptor[size] != (hashed(descriptor, size) >> 8 & 0xFF))
        return 0;
    *frame = (Frame){.packed = packed, .at = FLAGS_AT + size + 1, .flags = flags, .content_size = -1};
    frame->block_size = (int64_t)1 << (8 + 2 * (block >> 4));
    return !(flags & CONTENT_SIZE) || read_content_size(descriptor + 2, 8, &frame->content_size);
}

/* Read the next block. 0: the frame ends here. -1: it breaks off, or the block is too long. */
static int next_block(Frame *frame, Block *block) {
    int64_t left = frame->packed.size - frame->at - 4;
    if (left < 0)
        return -1;
    const uint8_t *data = frame->packed.data + frame->at;
    uint32_t size = (uint32_t)read_little(data, 4);
    *block = (Block){.data = data + 4, .size = size & ~STORED, .is_stored = (size & STORED) != 0};
    if (size == 0)
        return 0;
    int64_t checksum = frame->flags & BLOCK_CHECKSUM ? 4 : 0;
    if (block->size == 0 || block->size > frame->block_size || block->size + checksum > left)
        return -1;
    frame->at += 4 + block->size + checksum;
    return 1;
}

int64_t most_of_lz4(Packed packed, int64_t *likely) {
    Frame frame;
    Block block;
    int64_t most = 0;
    int there_is;
    if (!read_frame(packed, &frame))
        return -1;
    while ((there_is = next_block(&frame, &block)) > 0)
        most += block.is_stored ? block.size : Py_MIN(frame.block_size, block.size * BEST_RATIO);
    int64_t end = frame.at + 4 + (frame.flags & CONTENT_CHECKSUM ? 4 : 0);
    if (there_is < 0 || end != packed.size || frame.content_size > most)
        return -1;
    *likely = frame.content_size >= 0 ? frame.content_size : Py_MIN(most, likely_size(packed));
    return most;
}

int64_t unpack_lz4(const CodecLibrary *library, Packed packed, uint8_t *out, int64_t room) {
    Frame frame;
    Block block;
    int64_t size = 0;
    int there_is;
    if (!read_frame(packed, &frame))
        return -1;
    while ((there_is = next_block(&frame, &block)) > 0) {
        int64_t most = Py_MIN(frame.block_size, room - size), more = block.size;
        if (frame.flags & BLOCK_CHECKSUM && read_little(block.data + more, 4) != hashed(block.data, more))
            return -1;
        if (block.is_stored && more <= most)
            memcpy(out + size, block.data, (size_t)more);
        else if (block.is_stored)
            return -1;
        else
            more = library->lz4_decompress((const char *)block.data, (char *)out + size, (int)block.size, (int)most);
        if (more < 0 || more > most)
            return -1;
        size += more;
    }
    if (there_is < 0 || (frame.content_size >= 0 && frame.content_size != size))
        return -1;
    if (frame.flags & CONTENT_CHECKSUM &&
        (packed.size - frame.at != 8 || read_little(packed.data + frame.at + 4, 4) != hashed(out, size)))
        return -1;
    return size;
}
