/* Coverage of C libraries for the fuzzer: code compiled by gcc calls this function at every edge, and libFuzzer reads the counters.
   build.rs makes the linker ignore libFuzzer's own function of that name, which does nothing. */

#include <stdint.h>

enum { COUNTERS = 1 << 16 };

__attribute__((section("__libfuzzer_extra_counters"), used)) static uint8_t counters[COUNTERS];

__attribute__((no_sanitize_coverage)) void __wrap___sanitizer_cov_trace_pc(void)
{
    uintptr_t place = (uintptr_t)__builtin_return_address(0);
    counters[(place ^ place >> 16) % COUNTERS]++;
}
