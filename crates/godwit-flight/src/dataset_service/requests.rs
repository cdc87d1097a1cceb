//! Parses requests of clients: Flight descriptors, Flight SQL commands and dataset commands.

use arrow_flight::sql::{Any, Command};
use arrow_flight::{FlightDescriptor, flight_descriptor::DescriptorType};
use godwit_dataset::{Dataset, Scan, has_region_contig, region_error_message};
use godwit_model::{Region, did_you_mean};
use prost::Message as _;
use tonic::Status;

use super::DatasetCommand;

/// The command in a Flight descriptor.
pub(super) enum DescriptorCommand {
    Dataset(DatasetCommand),
    Sql(Box<Command>),
}

/// Parses a Flight descriptor.
pub(super) fn parse_descriptor(descriptor: &FlightDescriptor) -> Result<DescriptorCommand, Status> {
    match DescriptorType::try_from(descriptor.r#type) {
        Ok(DescriptorType::Path) if !descriptor.path.is_empty() => Ok(DescriptorCommand::Dataset(DatasetCommand {
            dataset: descriptor.path.join("/"),
            ..DatasetCommand::default()
        })),
        Ok(DescriptorType::Cmd) if descriptor.cmd.first() == Some(&b'{') => {
            let command = serde_json::from_slice(&descriptor.cmd);
            command.map(DescriptorCommand::Dataset).map_err(|error| {
                Status::invalid_argument(format!(
                    "invalid command: {error}; expected the form \
                     {{\"dataset\":\"x.bam\",\"regions\":[\"chr20:1-100\"]}}"
                ))
            })
        }
        Ok(DescriptorType::Cmd) => {
            decode_sql_command(&descriptor.cmd).map(|command| DescriptorCommand::Sql(Box::new(command)))
        }
        _ => Err(Status::invalid_argument("the descriptor has neither a path nor a command")),
    }
}

/// Decodes the protobuf encoding of a Flight SQL command.
pub(super) fn decode_sql_command(bytes: &[u8]) -> Result<Command, Status> {
    let unknown = || Status::invalid_argument("the bytes are neither a ticket nor a Flight SQL command");
    let message = Any::decode(bytes).map_err(|_| unknown())?;
    match Command::try_from(message).map_err(|_| unknown())? {
        Command::Unknown(_) => Err(unknown()),
        command => Ok(command),
    }
}

pub(super) fn scan_from_command(command: &DatasetCommand, dataset: &dyn Dataset) -> Result<Scan, Status> {
    let schema = dataset.schema();
    let column = |name: &String| {
        schema.index_of(name).map_err(|_| {
            let near = did_you_mean(name, schema.fields().iter().map(|field| field.name().as_str()));
            Status::invalid_argument(format!("{} has no column {name}{near}", command.dataset))
        })
    };
    let columns =
        command.columns.as_ref().map(|names| names.iter().map(column).collect::<Result<Vec<_>, _>>()).transpose()?;
    if columns.as_ref().is_some_and(|columns| !columns.is_sorted_by(|one, next| one < next)) {
        return Err(Status::invalid_argument(
            "name each column once, in the order of the dataset; use SQL for any other order",
        ));
    }
    if command.regions.is_some() && !dataset.has_regions() {
        return Err(Status::invalid_argument(format!("{} has no index for regions; use SQL", command.dataset)));
    }
    let region = |text: &String| Region::parse(text, |contig| has_region_contig(dataset, contig));
    let regions: Option<Result<Vec<Region>, _>> =
        command.regions.as_ref().map(|texts| texts.iter().map(region).collect());
    let refused =
        |error| Status::invalid_argument(format!("{}: {}", command.dataset, region_error_message(&error, dataset)));
    Ok(Scan { columns, regions: regions.transpose().map_err(refused)? })
}
