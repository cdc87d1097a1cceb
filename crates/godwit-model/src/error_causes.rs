//! Error messages that include the messages of the underlying causes.

use std::error::Error;

/// Returns the message of an error, followed by the messages of its causes. A cause is left out if the text before
/// already contains the message of the cause.
///
/// # Examples
///
/// ```
/// use std::io;
///
/// use godwit_model::message_with_causes;
///
/// #[derive(Debug, thiserror::Error)]
/// #[error("reading sample.bam failed")]
/// struct ReadError(#[source] io::Error);
///
/// let error = ReadError(io::Error::other("the disk was removed"));
/// assert_eq!(message_with_causes(&error), "reading sample.bam failed: the disk was removed");
/// ```
pub fn message_with_causes(error: &dyn Error) -> String {
    let mut message = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if !message.contains(&text) {
            message += ": ";
            message += &text;
        }
        cause = error.source();
    }
    message
}

/// Returns whether an error is a failure of the system and not a defect of the data. This is the case if a cause is an
/// I/O error, except an I/O error of kind `InvalidData` that wraps another error.
///
/// # Examples
///
/// ```
/// use std::io;
///
/// use godwit_model::{RecordError, is_system_failure};
///
/// assert!(is_system_failure(&io::Error::from(io::ErrorKind::StorageFull)));
/// assert!(!is_system_failure(&io::Error::new(io::ErrorKind::InvalidData, "not a BAM file")));
/// assert!(!is_system_failure(&RecordError::InvalidName));
/// ```
pub fn is_system_failure(error: &(dyn Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<std::io::Error>() {
            return error.kind() != std::io::ErrorKind::InvalidData || error.get_ref().is_none();
        }
        cause = error.source();
    }
    false
}
