//! The messages of a job, as types that the job defines, and the envelopes in which they are sent. Small messages of a
//! worker use one connection, as JSON in the metadata of empty batches. Data use other connections.
//!
//! Head and workers have the same version, because the head rejects workers of other versions. Only the messages of
//! that rejection keep their form between versions: [`UploadHeader::Join`] and [`HeadMessage::RejectWorker`].

use std::fmt::Debug;

use godwit_fleet::WorkerId;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The messages between the head and the workers of a job.
pub trait JobMessages: 'static {
    /// Name of the job in the task, by which a worker selects the code that it runs.
    const NAME: &'static str;
    /// The task, which every worker receives when it joins.
    type Task: Serialize;
    /// A command from the head to a worker.
    type Command: Serialize + DeserializeOwned + Debug + Send + 'static;
    /// An event that a worker reports to the head.
    type Event: Serialize + DeserializeOwned + Debug + Send + 'static;
    /// The description of data that a worker uploads to the head.
    type Upload: Serialize + DeserializeOwned + Debug + Send + 'static;
    /// The identification of data that a worker downloads from the head or from another worker.
    type Ticket: Serialize + DeserializeOwned + Send + 'static;
}

/// The ticket of a job without downloads.
#[derive(Debug, Serialize, Deserialize)]
pub enum NoTicket {}

/// A task with the name of its job, in one JSON object.
#[derive(Debug, Serialize)]
pub(crate) struct NamedTask<'t, T> {
    #[serde(rename = "work")]
    pub(crate) job_name: &'static str,
    #[serde(flatten)]
    pub(crate) task: &'t T,
}

/// A message from the head to a worker. A type parameter that a message does not need is `()` or `IgnoredAny`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "snake_case")]
pub(crate) enum HeadMessage<T, C> {
    /// The head accepts the worker.
    #[serde(rename = "welcome")]
    AcceptWorker {
        /// Id of the worker in this run.
        #[serde(rename = "node")]
        worker: WorkerId,
        /// The task of all workers.
        #[serde(rename = "job")]
        task: T,
    },
    /// The head rejects the worker.
    #[serde(rename = "refused")]
    RejectWorker {
        /// The reason for the rejection.
        #[serde(rename = "why")]
        reason: String,
    },
    /// A command of the job.
    Command {
        /// The command.
        command: C,
    },
    /// The run has finished; the worker exits.
    Finish,
}

/// A message from a worker to the head.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "report", rename_all = "snake_case")]
pub(crate) enum WorkerMessage<E> {
    /// An event of the job.
    Event {
        /// The event.
        event: E,
    },
    /// The worker has failed and exits.
    Failed {
        /// Error message: the failure, where it occurred, and what to do.
        message: String,
        /// Exit code of godwit for the failure, if it would occur on every worker in the same way; the run then ends.
        /// `None` if other workers can continue.
        fatal_exit_code: Option<i32>,
    },
}

/// The first message of an upload stream from a worker to the head.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "upload", rename_all = "snake_case")]
pub(crate) enum UploadHeader<U> {
    /// A worker joins the run. Until the stream ends, the worker sends events, and the head responds with commands.
    Join {
        /// Version of the worker's program.
        version: String,
        /// Name of the worker's host and process, for messages to users.
        name: String,
    },
    /// Data of a worker that has joined.
    Data {
        /// The worker that sends the data.
        worker: WorkerId,
        /// Description of the data.
        description: U,
        /// Size of each piece of the data, bytes.
        piece_bytes: Vec<u64>,
    },
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct TestTask {
        reference: String,
        regions: u64,
    }

    #[test]
    fn a_task_and_the_name_of_its_job_are_one_object() {
        let task = TestTask { reference: "/a.fa".into(), regions: u64::MAX };
        let message = HeadMessage::<_, ()>::AcceptWorker {
            worker: WorkerId(3),
            task: NamedTask { job_name: "call", task: &task },
        };
        let sent = serde_json::to_value(&message).unwrap();
        let job = json!({ "work": "call", "reference": "/a.fa", "regions": u64::MAX });
        assert_eq!(sent, json!({ "order": "welcome", "node": 3, "job": job }));
    }

    #[test]
    fn the_messages_of_a_rejection_are_those_of_earlier_versions() {
        let join = json!({ "upload": "join", "version": "0.0.1", "name": "host" });
        assert!(matches!(serde_json::from_value(join).unwrap(), UploadHeader::<NoTicket>::Join { .. }));
        let rejection = HeadMessage::<(), ()>::RejectWorker { reason: "its version".into() };
        assert_eq!(serde_json::to_value(&rejection).unwrap(), json!({ "order": "refused", "why": "its version" }));
    }
}
