//! Settings of the memory allocator.

/// Bytes that the allocator of a process keeps for its next allocations, in each arena. It keeps buffers of less than a
/// quarter of this size, such as blocks of files and messages of Flight; the kernel provides larger ones directly.
pub const KEPT_ALLOCATOR_BYTES: usize = 16 << 20;

/// Lets the memory allocator of glibc keep freed memory for the next allocations: up to `bytes` in each of `max_arenas`
/// arenas. By default, it returns the pages of buffers to the kernel and requests them again for the next buffer, which
/// takes a fifth of the CPU time of a server that sends files, and a seventh of grouping a million rows in SQL. The
/// variables `MALLOC_*` of the environment no longer apply. Other C libraries have no such settings; with them, does
/// nothing.
pub fn keep_freed_memory(bytes: usize, max_arenas: usize) {
    #[cfg(target_env = "gnu")]
    {
        let clamped = |value: usize| i32::try_from(value).unwrap_or(i32::MAX);
        // SAFETY: mallopt only stores the values, and ignores values that it does not accept.
        unsafe {
            libc::mallopt(libc::M_TRIM_THRESHOLD, clamped(bytes));
            libc::mallopt(libc::M_MMAP_THRESHOLD, clamped(bytes / 4));
            libc::mallopt(libc::M_ARENA_MAX, clamped(max_arenas));
        }
    }
    #[cfg(not(target_env = "gnu"))]
    let _ = (bytes, max_arenas);
}
