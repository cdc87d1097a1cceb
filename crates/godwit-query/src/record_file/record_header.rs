//! The header of a file of records, from the dataset from which its rows come.

use arrow_schema::SchemaRef;
use godwit_flight::Status;
use godwit_formats::{sam, vcf};
use godwit_model::Genome;
use godwit_model::schema::{alignment_columns, variant_columns};

use crate::copy_statement::RecordFormat;
use crate::error::StatementError;

/// The header that the rows of a query get in a file of records.
#[derive(Debug)]
pub enum RecordHeader {
    /// The header of a BAM file.
    Reads(Box<ReadsHeader>),
    /// The header of a VCF or BCF file.
    Variants(Box<VariantsHeader>),
    /// No header. For Parquet, the schema of the one dataset of the query, if there is one, whose metadata the file gets
    /// if it has the same columns.
    Table(Option<SchemaRef>),
}

/// A SAM header, parsed.
#[derive(Debug)]
pub struct ReadsHeader {
    pub(super) header: sam::Header,
    pub(super) genome: Genome,
    pub(super) read_groups: Vec<String>,
}

/// A VCF header, and the columns that it defines.
#[derive(Debug)]
pub struct VariantsHeader {
    pub(super) header: vcf::Header,
    pub(super) layout: vcf::VariantLayout,
}

impl RecordHeader {
    /// Selects the header for a format among the datasets of a query, given as their schemas.
    ///
    /// # Errors
    /// [`StatementError::Failed`] with the code `InvalidArgument` if the format needs a header, and the datasets have none
    /// or different ones; or if the header is invalid.
    pub fn select(format: RecordFormat, schemas: &[SchemaRef]) -> Result<Self, StatementError> {
        match format {
            RecordFormat::Bam => {
                let text = only_header(schemas, alignment_columns::HEADER_KEY, "SAM")?;
                ReadsHeader::parse(text)
                    .map(|header| Self::Reads(Box::new(header)))
                    .map_err(|error| header_error("SAM", error))
            }
            RecordFormat::VcfGz | RecordFormat::Bcf => {
                let text = only_header(schemas, variant_columns::HEADER_KEY, "VCF")?;
                VariantsHeader::parse(text)
                    .map(|header| Self::Variants(Box::new(header)))
                    .map_err(|error| header_error("VCF", error))
            }
            RecordFormat::Bed => Ok(Self::Table(None)),
            RecordFormat::Parquet => Ok(Self::Table(match schemas {
                [one] => Some(one.clone()),
                _ => None,
            })),
        }
    }
}

impl ReadsHeader {
    fn parse(text: &str) -> Result<Self, sam::HeaderError> {
        let header = sam::Header::parse(text.as_bytes())?;
        let genome = header.genome()?;
        let read_groups = header.read_groups()?.into_iter().map(|group| group.id).collect();
        Ok(Self { header, genome, read_groups })
    }
}

impl VariantsHeader {
    fn parse(text: &str) -> Result<Self, String> {
        let header = vcf::Header::from_text(text)?;
        let layout = vcf::VariantLayout::new(&header).map_err(|error| error.to_string())?;
        Ok(Self { header, layout })
    }
}

fn header_error(kind: &str, error: impl std::fmt::Display) -> StatementError {
    Status::invalid_argument(format!("the {kind} header is invalid: {error}")).into()
}

/// Returns the header that all datasets with a header of this kind have.
fn only_header<'s>(schemas: &'s [SchemaRef], key: &str, kind: &str) -> Result<&'s str, StatementError> {
    let mut headers: Vec<&str> =
        schemas.iter().filter_map(|schema| Some(schema.metadata().get(key)?.as_str())).collect();
    headers.dedup();
    let problem = match headers[..] {
        [one] => return Ok(one),
        [] => format!("no dataset of the statement has a {kind} header; name one that has, with --header-from DATASET"),
        _ => format!(
            "the datasets of the statement have different {kind} headers; select one with --header-from DATASET"
        ),
    };
    Err(Status::invalid_argument(problem).into())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_schema::Schema;

    use super::*;

    #[test]
    fn the_header_is_the_one_that_all_datasets_share() {
        let schema = |text: &str| {
            let metadata = [(alignment_columns::HEADER_KEY.to_owned(), text.to_owned())];
            Arc::new(Schema::empty().with_metadata(metadata.into()))
        };
        let (a, b) = (schema("@SQ\tSN:a\tLN:9\n"), schema("@SQ\tSN:b\tLN:9\n"));
        let select = |schemas: &[SchemaRef]| RecordHeader::select(RecordFormat::Bam, schemas);
        assert!(matches!(select(&[a.clone(), a.clone()]), Ok(RecordHeader::Reads(_))));
        assert!(select(&[a, b]).unwrap_err().to_string().contains("different SAM headers"));
        assert!(select(&[]).unwrap_err().to_string().contains("--header-from"));
    }
}
