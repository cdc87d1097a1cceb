//! Times as seconds since 1970 and nanoseconds, as in the entries of files.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Returns a time as seconds since 1970, which may be negative, and nanoseconds.
///
/// # Examples
///
/// ```
/// use std::time::{Duration, UNIX_EPOCH};
///
/// use godwit_transfer_session::unix_time::{time_from_unix, unix_time};
///
/// let time = UNIX_EPOCH - Duration::from_millis(1500);
/// assert_eq!(unix_time(time), (-2, 500_000_000));
/// assert_eq!(time_from_unix(-2, 500_000_000), time);
/// ```
pub fn unix_time(time: SystemTime) -> (i64, u32) {
    let since = time.duration_since(UNIX_EPOCH);
    let seconds = |duration: Duration| i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
    match since.map_err(|before| before.duration()) {
        Ok(since) => (seconds(since), since.subsec_nanos()),
        Err(before) if before.subsec_nanos() == 0 => (-seconds(before), 0),
        Err(before) => (-seconds(before) - 1, 1_000_000_000 - before.subsec_nanos()),
    }
}

/// Returns the time of seconds since 1970 and nanoseconds. Values that no time has give the start of 1970.
pub fn time_from_unix(seconds: i64, nanoseconds: u32) -> SystemTime {
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let start = if seconds < 0 { UNIX_EPOCH.checked_sub(whole) } else { UNIX_EPOCH.checked_add(whole) };
    let time = start.and_then(|start| start.checked_add(Duration::from_nanos(nanoseconds.into())));
    time.unwrap_or(UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_keep_their_nanoseconds() {
        for (seconds, nanoseconds) in [(0, 0), (5, 7), (-1, 0), (-1, 999_999_999), (-3, 1)] {
            assert_eq!(unix_time(time_from_unix(seconds, nanoseconds)), (seconds, nanoseconds));
        }
        assert_eq!(time_from_unix(i64::MAX, 2_000_000_000), UNIX_EPOCH);
    }
}
