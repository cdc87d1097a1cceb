//! Hints to the processor and the kernel about memory use. The hints affect only the speed.

/// Prefetches the cache line of the element at `index`, which the caller reads soon.
#[inline]
pub(super) fn prefetch<T>(elements: &[T], index: u64) {
    #[cfg(target_arch = "x86_64")]
    if let Some(element) = elements.get(index as usize) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: the address is that of an element, and a prefetch has no effect that the program could observe.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(element).cast()) }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (elements, index);
}

/// Requests huge pages for memory that is read at random positions. With pages of 4 KiB, address translation takes as
/// long as the reads themselves. `memory` must not have been written to yet.
pub(super) fn use_huge_pages<T>(memory: &mut Vec<T>) {
    let spare = memory.spare_capacity_mut();
    let bytes = std::mem::size_of_val(spare);
    let start = spare.as_mut_ptr().cast::<u8>();
    // SAFETY: sysconf has no preconditions.
    let page_bytes = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
    let skipped = start.align_offset(page_bytes);
    if let Some(whole) =
        bytes.checked_sub(skipped).map(|bytes| bytes / page_bytes * page_bytes).filter(|bytes| *bytes > 0)
    {
        // SAFETY: the range consists of whole pages within the allocation, and the advice does not change their
        // content. A kernel without huge pages returns an error and changes nothing.
        let _ = unsafe { libc::madvise(start.add(skipped).cast(), whole, libc::MADV_HUGEPAGE) };
    }
}
