//! How far a copy is.

use godwit_transfer::{CopyEvent, CopyObserver};

use super::{Display, Progress, warning};
use crate::cli::LogLevel;
use crate::failure::{log_event, log_message, log_warning, print};

impl CopyObserver for Progress {
    fn event(&self, event: &CopyEvent) {
        if let Display::Json { steps } = self.display {
            let told = match event {
                CopyEvent::Warning { .. } => self.log >= LogLevel::Warn,
                CopyEvent::NotCopied { .. } => true,
                _ => steps,
            };
            if told {
                log_event(&serde_json::to_string(event).unwrap_or_else(|error| warning(&error)));
            }
            return;
        }
        match event {
            CopyEvent::Started { kept_bytes, .. } => {
                self.stage("copying");
                if *kept_bytes > 0 {
                    self.say(&format!("going on: {:.1} MB are there from before", *kept_bytes as f64 / 1e6));
                }
            }
            CopyEvent::Copying { bytes, of, bytes_per_s, retransmits, damaged, .. } => {
                let fraction = *bytes as f64 / (*of).max(1) as f64;
                let mut text = format!(
                    "{:.1} of {:.1} MB copied, {:.0} Mbit/s",
                    *bytes as f64 / 1e6,
                    *of as f64 / 1e6,
                    *bytes_per_s as f64 * 8.0 / 1e6
                );
                for (count, what) in [(*retransmits, "packets sent again"), (*damaged, "blocks damaged")] {
                    if count > 0 {
                        text += &format!(", {count} {what}");
                    }
                }
                self.step(Some(fraction), text);
            }
            CopyEvent::Packing { path, bytes, of } => {
                // A file that the destination names has no path below it.
                let name = if path.is_empty() { String::new() } else { format!("{path}: ") };
                let fraction = *bytes as f64 / (*of).max(1) as f64;
                let done = format!("{name}{:.1} of {:.1} MB packed or unpacked", *bytes as f64 / 1e6, *of as f64 / 1e6);
                self.step(Some(fraction), done);
            }
            CopyEvent::Would { what, path, bytes } => {
                // A closed stdout is no reason to go on differently: nothing is done here.
                let _ = print(&format!("{}\t{path}\t{bytes}\n", what.name()));
            }
            CopyEvent::Copied { path, blake3, .. } if self.log >= LogLevel::Debug => {
                log_message(&format!("{path} {blake3}"));
            }
            CopyEvent::Unpacked { path, bytes, sent_bytes } if self.log >= LogLevel::Debug => {
                log_message(&format!("{path}: {sent_bytes} bytes sent in place of {bytes}"));
            }
            CopyEvent::Copied { .. } | CopyEvent::Unpacked { .. } | CopyEvent::Saved { .. } => {}
            CopyEvent::NotCopied { path, why } => {
                // One line for each, whatever its name.
                log_message(&format!("not copied: {path}: {why}").replace(char::is_control, "?"));
            }
            CopyEvent::Warning { message } if self.log >= LogLevel::Warn => log_warning(message),
            CopyEvent::Warning { .. } => {}
        }
    }
}
