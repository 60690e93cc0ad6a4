/* Which branches of the decoder ran: what gcc's -fsanitize-coverage=trace-pc calls on each edge of its flow, and what
 * guided_fuzz asks. It is built into the extension under test, and not traced itself.
 */

#include <stdint.h>
#include <string.h>

#define SLOTS 8192

static uint8_t hits[SLOTS], seen[SLOTS];
static uintptr_t previous;

int coverage_is_new(void);
int coverage_edges(void);

__attribute__((visibility("hidden"))) void __sanitizer_cov_trace_pc(void) {
    uintptr_t here = (uintptr_t)__builtin_return_address(0) - (uintptr_t)&__sanitizer_cov_trace_pc;
    uintptr_t slot = (here ^ here >> 13 ^ previous) % SLOTS;
    if (hits[slot] < UINT8_MAX)
        hits[slot]++;
    previous = here >> 1; /* from where to where: an edge, and not a place */
}

/* Once, twice, three times, some times, often: another loop count is worth keeping only where it is of another kind. */
static uint8_t kind(uint8_t count) {
    if (count < 4)
        return (uint8_t)(1 << count >> 1);
    return count < 8 ? 8 : count < 16 ? 16 : count < 32 ? 32 : count < 128 ? 64 : 128;
}

/* Whether anything ran since the last call that never did before, or never so often. */
int coverage_is_new(void) {
    int is_new = 0;
    for (int slot = 0; slot < SLOTS; slot++) {
        if (hits[slot] == 0)
            continue;
        uint8_t found = kind(hits[slot]);
        is_new |= found & ~seen[slot];
        seen[slot] |= found;
    }
    memset(hits, 0, sizeof hits);
    previous = 0;
    return is_new != 0;
}

/* How many edges ran at all. */
int coverage_edges(void) {
    int edges = 0;
    for (int slot = 0; slot < SLOTS; slot++)
        edges += seen[slot] != 0;
    return edges;
}
