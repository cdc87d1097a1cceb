//! The schema and the header that all record batches of a VCF file share.

use std::collections::HashMap;

use arrow_schema::{Schema, SchemaRef};
use foldhash::fast::RandomState;
use godwit_model::schema::variant_columns::{self, FieldDefinition, ValueCount, ValueType};

use super::error::VcfError;
use super::header::Header;

/// Maximum number of fields that become columns. The largest annotations in use define hundreds of fields.
const MAX_FIELDS: usize = 4096;
/// The `FORMAT` field for genotypes, which has columns of its own whether or not the header defines it.
const GENOTYPE_KEY: &str = "GT";

/// A map by name, with a hash function that is fast for short names. Names are looked up several times for each record.
type NameMap<V> = HashMap<String, V, RandomState>;

/// The schema of the batches of a VCF file, and the assignment of fields to columns.
#[derive(Debug)]
pub struct VariantLayout {
    /// Schema with the columns; its metadata contains the version of the schema and the VCF header.
    pub schema: SchemaRef,
    pub(super) contigs: NameMap<i32>,
    pub(super) info: Vec<FieldDefinition>,
    pub(super) formats: Vec<FieldDefinition>,
    pub(super) info_index: NameMap<usize>,
    pub(super) format_index: NameMap<usize>,
    pub(super) sample_count: usize,
}

impl VariantLayout {
    /// Returns whether the header defines a contig with this name.
    pub fn has_contig(&self, name: &str) -> bool {
        self.contigs.contains_key(name)
    }

    /// Creates the layout for the records of a file with this header.
    ///
    /// # Errors
    /// [`VcfError::TooManyFields`] if the header defines too many fields.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use arrow_schema::DataType;
    /// use godwit_formats::vcf::{Reader, VariantLayout};
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("a.vcf");
    /// let contig = "##contig=<ID=chr20,length=64444167>";
    /// let info = "##INFO=<ID=DP,Number=1,Type=Integer,Description=\"Depth\">";
    /// let columns = "#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO";
    /// std::fs::write(&path, format!("##fileformat=VCFv4.2\n{contig}\n{info}\n{columns}\n"))?;
    /// let layout = VariantLayout::new(Reader::open(&path, 1)?.header())?;
    /// assert_eq!(layout.schema.field_with_name("info_DP")?.data_type(), &DataType::Int32);
    /// assert!(layout.has_contig("chr20"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn new(header: &Header) -> Result<Self, VcfError> {
        let sample_count = header.samples().len();
        let info = header.info().to_vec();
        let mut formats = header.formats().to_vec();
        let fields = info.len() + formats.len();
        if fields > MAX_FIELDS {
            return Err(VcfError::TooManyFields { fields, limit: MAX_FIELDS });
        }
        formats.retain(|field| field.id != GENOTYPE_KEY);
        let id = GENOTYPE_KEY.to_owned();
        formats.insert(0, FieldDefinition { id, value_type: ValueType::Text, count: ValueCount::One });
        if sample_count == 0 {
            formats.clear();
        }
        let schema = variant_columns::variants(&info, &formats, sample_count > 0);
        let metadata =
            [(variant_columns::VERSION_KEY, variant_columns::VERSION), (variant_columns::HEADER_KEY, header.text())];
        let metadata = metadata.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let schema = Schema::new_with_metadata(schema.fields().clone(), metadata.into());
        let index = |fields: &[FieldDefinition]| {
            fields.iter().enumerate().map(|(at, field)| (field.id.clone(), at)).collect::<NameMap<_>>()
        };
        let contigs = header.contigs().iter().zip(0..).map(|(contig, id)| (contig.name.clone(), id)).collect();
        let (info_index, format_index) = (index(&info), index(&formats));
        Ok(Self { schema: schema.into(), contigs, info, formats, info_index, format_index, sample_count })
    }

    /// Returns the number of cells that every row has, independent of its content.
    pub(super) fn cells_per_row(&self) -> usize {
        self.schema.fields().len()
    }
}
