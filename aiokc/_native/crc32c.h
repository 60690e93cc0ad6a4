/* CRC-32C by the CPU's own instruction, for the thread that never takes the GIL: it can't call the package crc32c, which
 * checks everything else, and is faster. Where there is no such instruction, nothing is checked in that thread. */

#ifndef AIOKC_CRC32C_H
#define AIOKC_CRC32C_H

#include <stdint.h>
#include <string.h>

#if defined(__GNUC__) && defined(__x86_64__)

#include <nmmintrin.h>

static inline int has_crc32c(void) {
    return __builtin_cpu_supports("sse4.2");
}

__attribute__((target("sse4.2"))) static inline uint32_t crc32c_of(const uint8_t *bytes, int64_t size) {
    uint64_t crc = UINT32_MAX, word;
    for (; size >= 8; size -= 8, bytes += 8) {
        memcpy(&word, bytes, 8);
        crc = _mm_crc32_u64(crc, word);
    }
    for (; size > 0; size--)
        crc = _mm_crc32_u8((uint32_t)crc, *bytes++);
    return ~(uint32_t)crc;
}

#elif defined(__GNUC__) && defined(__aarch64__) && \
    (defined(__ARM_FEATURE_CRC32) || (defined(__linux__) && !defined(__clang__)))

#include <arm_acle.h>

/* Compilers for macOS take the instruction for granted; on Linux the kernel says whether it is there. */
#ifdef __ARM_FEATURE_CRC32

#define WITH_CRC32

static inline int has_crc32c(void) {
    return 1;
}

#else

#include <sys/auxv.h>

#define WITH_CRC32 __attribute__((target("+crc")))

static inline int has_crc32c(void) {
    enum { CRC32 = 1 << 7 }; /* HWCAP_CRC32, which not every libc defines */
    return (getauxval(AT_HWCAP) & CRC32) != 0;
}

#endif

WITH_CRC32 static inline uint32_t crc32c_of(const uint8_t *bytes, int64_t size) {
    uint32_t crc = UINT32_MAX;
    uint64_t word;
    for (; size >= 8; size -= 8, bytes += 8) {
        memcpy(&word, bytes, 8);
        crc = __crc32cd(crc, word);
    }
    for (; size > 0; size--)
        crc = __crc32cb(crc, *bytes++);
    return ~crc;
}

#else

static inline int has_crc32c(void) {
    return 0;
}

static inline uint32_t crc32c_of(const uint8_t *bytes, int64_t size) {
    (void)bytes, (void)size;
    return 0;
}

#endif

#endif
