//! Work on indices that several threads share.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Calls `work` for every index below `count`, on at most `threads` threads, one of which is the calling thread. Each
/// thread creates its own state with `new_state`, and takes the next index when it is free. Returns the results in the
/// order of the indices.
///
/// # Errors
/// The error of the smallest index whose work failed. Indices are not begun after an error.
///
/// # Examples
///
/// ```
/// use godwit_kernels::threads::for_each_index;
///
/// let words = ["chr1", "chr10"];
/// let lengths = for_each_index(2, words.len(), || (), |(), index| Ok::<_, ()>(words[index].len()));
/// assert_eq!(lengths, Ok(vec![4, 5]));
/// ```
pub fn for_each_index<S, R: Send, E: Send>(
    threads: usize,
    count: usize,
    new_state: impl Fn() -> S + Sync,
    work: impl Fn(&mut S, usize) -> Result<R, E> + Sync,
) -> Result<Vec<R>, E> {
    let next = AtomicUsize::new(0);
    let take_indices = || {
        let (mut state, mut results) = (new_state(), Vec::new());
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= count {
                return results;
            }
            let result = work(&mut state, index);
            if result.is_err() {
                next.fetch_max(count, Ordering::Relaxed);
            }
            results.push((index, result));
        }
    };
    let mut results = std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads.min(count)).map(|_| scope.spawn(take_indices)).collect();
        let mut results = take_indices();
        for other in others {
            results.extend(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        results
    });
    results.sort_unstable_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_have_the_order_of_the_indices() {
        for threads in 1..5 {
            let squares: Result<Vec<usize>, ()> = for_each_index(threads, 100, || (), |(), index| Ok(index * index));
            assert_eq!(squares, Ok((0..100).map(|index| index * index).collect()));
        }
    }

    #[test]
    fn the_first_of_several_errors_is_returned() {
        for threads in 1..5 {
            let failed = for_each_index(threads, 100, || (), |(), index| if index < 30 { Ok(()) } else { Err(index) });
            assert_eq!(failed, Err(30));
        }
    }

    #[test]
    fn each_thread_has_a_state_of_its_own() {
        for threads in 1..5 {
            let count_work = |done: &mut usize, _| {
                *done += 1;
                Ok::<_, ()>(*done)
            };
            let counts = for_each_index(threads, 100, || 0, count_work).unwrap();
            assert!(counts.iter().filter(|count| **count == 1).count() <= threads);
            assert!(counts.iter().max().unwrap() * threads >= 100);
        }
    }
}
