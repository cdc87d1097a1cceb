//! Displays the progress of `godwit copy`.

use godwit_cli::cli::LogLevel;
use godwit_cli::failure::print;
use godwit_cli::log::{log_event, log_message, log_warning};
use godwit_transfer::{CopyEvent, CopyObserver};

use super::{Progress, ProgressDisplay, warning_event};

impl CopyObserver for Progress {
    fn on_event(&self, event: &CopyEvent) {
        if let ProgressDisplay::Json { shows_progress } = self.display {
            let is_shown = match event {
                CopyEvent::Warning { .. } => self.log >= LogLevel::Warn,
                CopyEvent::NotCopied { .. } => true,
                _ => shows_progress,
            };
            if is_shown {
                log_event(&serde_json::to_string(event).unwrap_or_else(|error| warning_event(&error)));
            }
            return;
        }
        match event {
            CopyEvent::Started { resumed_bytes, .. } => {
                self.show_stage("copying");
                if *resumed_bytes > 0 {
                    self.report(&format!(
                        "resuming after {:.1} MB that were copied before",
                        *resumed_bytes as f64 / 1e6
                    ));
                }
            }
            CopyEvent::Progress { bytes, total_bytes, bytes_per_s, retransmits, damaged, .. } => {
                let fraction = *bytes as f64 / (*total_bytes).max(1) as f64;
                let mut text = format!(
                    "{:.1} of {:.1} MB copied, {:.0} Mbit/s",
                    *bytes as f64 / 1e6,
                    *total_bytes as f64 / 1e6,
                    *bytes_per_s as f64 * 8.0 / 1e6
                );
                for (count, what) in [(*retransmits, "packets retransmitted"), (*damaged, "blocks damaged")] {
                    if count > 0 {
                        text += &format!(", {count} {what}");
                    }
                }
                self.show_progress(Some(fraction), text);
            }
            CopyEvent::DeltaProgress { path, bytes, total_bytes: of } => {
                // If a single file is copied, its relative path is empty.
                let name = if path.is_empty() { String::new() } else { format!("{path}: ") };
                let fraction = *bytes as f64 / (*of).max(1) as f64;
                let done = format!(
                    "{name}{:.1} of {:.1} MB compressed or decompressed",
                    *bytes as f64 / 1e6,
                    *of as f64 / 1e6
                );
                self.show_progress(Some(fraction), done);
            }
            CopyEvent::DryRunAction { action, path, bytes } => {
                // Ignore errors of stdout: a dry run has no other effects.
                let _ = print(&format!("{}\t{path}\t{bytes}\n", action.name()));
            }
            CopyEvent::Copied { path, blake3, .. } if self.log >= LogLevel::Debug => {
                log_message(&format!("{path} {blake3}"));
            }
            CopyEvent::DeltaCopied { path, bytes, sent_bytes } if self.log >= LogLevel::Debug => {
                log_message(&format!("{path}: {sent_bytes} bytes sent instead of {bytes}"));
            }
            CopyEvent::Copied { .. } | CopyEvent::DeltaCopied { .. } | CopyEvent::DeltaSavings { .. } => {}
            CopyEvent::NotCopied { path, reason } => {
                // Replace control characters in the path, so that the message is a single line.
                log_message(&format!("not copied: {path}: {reason}").replace(char::is_control, "?"));
            }
            CopyEvent::Warning { message } if self.log >= LogLevel::Warn => log_warning(message),
            CopyEvent::Warning { .. } => {}
        }
    }
}
