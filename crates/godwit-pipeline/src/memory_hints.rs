//! Hints about memory to the processor and the kernel. They change only the speed of a job, not its results.

/// Bytes of a cache line.
const CACHE_LINE_BYTES: usize = 64;
/// Minimum size of a buffer for which a huge page (2 MiB) is requested, bytes.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Prefetches bytes that will be read soon into the processor cache.
#[inline]
pub(crate) fn prefetch(bytes: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    for line in bytes.chunks(CACHE_LINE_BYTES) {
        // SAFETY: the address is that of a live slice, and a prefetch neither faults nor changes memory.
        unsafe { std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(line.as_ptr().cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (bytes, CACHE_LINE_BYTES);
}

/// Returns a buffer with this capacity. It uses huge pages of 2 MiB if the kernel allows it, which causes one page
/// fault instead of 512.
pub fn large_buffer(capacity: usize) -> Vec<u8> {
    let buffer: Vec<u8> = Vec::with_capacity(capacity);
    let start = (buffer.as_ptr() as usize).next_multiple_of(HUGE_PAGE_BYTES);
    let end = (buffer.as_ptr() as usize + buffer.capacity()) / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
    if start < end {
        // SAFETY: the range is page-aligned and within the allocation, and MADV_HUGEPAGE does not change its content. A
        // failure has no effect.
        unsafe { libc::madvise(start as *mut libc::c_void, end - start, libc::MADV_HUGEPAGE) };
    }
    buffer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_leave_memory_as_it_is() {
        for capacity in [0, 1, HUGE_PAGE_BYTES, 5 * HUGE_PAGE_BYTES + 17] {
            let mut buffer = large_buffer(capacity);
            let mut plain = Vec::with_capacity(capacity);
            for byte in (0..capacity).map(|at| at as u8) {
                buffer.push(byte);
                plain.push(byte);
            }
            prefetch(&buffer);
            assert!(buffer == plain);
        }
    }
}
