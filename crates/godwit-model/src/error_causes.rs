//! Error messages with their causes.

use std::error::Error;

/// Returns the message of an error, followed by those of its causes that it does not repeat itself.
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

/// Reports whether the system failed, not the data: a cause is an I/O error that does not wrap an error about data.
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
