//! The SQL function `gff_attributes(attributes)`, which returns the attributes of a feature of GFF or GTF as a map.
//!
//! GFF3 has `key=value` between semicolons, with percent codes, which are decoded
//! (<https://github.com/The-Sequence-Ontology/Specifications>, version 1.26). GTF has `key "value"` between semicolons.
//! The values of a key that occurs several times are joined by commas.

use std::sync::Arc;

use datafusion::arrow::array::builder::{MapBuilder, StringBuilder};
use datafusion::arrow::array::{Array, AsArray};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Result, exec_err};
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};
use godwit_dataset::percent_decode;

/// Returns the SQL function.
pub(crate) fn gff_attributes_function() -> ScalarUDF {
    ScalarUDF::from(GffAttributesFunction {
        signature: Signature::exact(vec![DataType::Utf8], Volatility::Immutable),
        return_type: new_builder().finish().data_type().clone(),
    })
}

fn new_builder() -> MapBuilder<StringBuilder, StringBuilder> {
    MapBuilder::new(None, StringBuilder::new(), StringBuilder::new())
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct GffAttributesFunction {
    signature: Signature,
    return_type: DataType,
}

impl ScalarUDFImpl for GffAttributesFunction {
    fn name(&self) -> &str {
        "gff_attributes"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType> {
        Ok(self.return_type.clone())
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [texts] = &arguments.args[..] else {
            return exec_err!("{}() takes the column attributes", self.name());
        };
        let texts = texts.to_array(arguments.number_rows)?;
        let texts = texts.as_string::<i32>();
        let mut maps = new_builder();
        for row in 0..texts.len() {
            let is_valid = texts.is_valid(row);
            if is_valid {
                push_attributes(texts.value(row), &mut maps);
            }
            maps.append(is_valid)?;
        }
        Ok(ColumnarValue::Array(Arc::new(maps.finish())))
    }
}

/// Appends the entries of one map, in the order in which the keys occur first.
fn push_attributes(text: &str, maps: &mut MapBuilder<StringBuilder, StringBuilder>) {
    let mut entries: Vec<(String, String)> = Vec::new();
    // A key of GTF ends with a blank, and a key of GFF3 with an equals sign.
    let end_of_key = text.trim_start().find(['=', ' ', '"']).map(|end| text.trim_start().as_bytes()[end]);
    let attributes = if end_of_key == Some(b'=') { gff3_attributes(text) } else { gtf_attributes(text) };
    for (key, value) in attributes {
        match entries.iter_mut().find(|(known, _)| *known == key) {
            Some((_, values)) => values.extend([",", &value]),
            None => entries.push((key, value)),
        }
    }
    for (key, value) in entries {
        maps.keys().append_value(key);
        maps.values().append_value(value);
    }
}

fn gff3_attributes(text: &str) -> Vec<(String, String)> {
    let decoded = |text: &str| percent_decode(text).unwrap_or_else(|| text.to_owned());
    let pairs = text.split(';').filter_map(|attribute| attribute.trim().split_once('='));
    pairs.map(|(key, value)| (decoded(key), decoded(value))).collect()
}

fn gtf_attributes(text: &str) -> Vec<(String, String)> {
    let mut is_quoted = false;
    let is_separator = |letter: char| {
        is_quoted ^= letter == '"';
        letter == ';' && !is_quoted
    };
    let pairs = text.split(is_separator).filter_map(|attribute| attribute.trim().split_once(' '));
    let unquoted = |value: &str| {
        let inner = value.strip_prefix('"').and_then(|value| value.strip_suffix('"'));
        inner.unwrap_or(value).to_owned()
    };
    pairs.map(|(key, value)| (key.to_owned(), unquoted(value.trim()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attributes(text: &str) -> Vec<(String, String)> {
        let mut maps = new_builder();
        push_attributes(text, &mut maps);
        maps.append(true).unwrap();
        let map = maps.finish();
        let (keys, values) = (map.keys().as_string::<i32>(), map.values().as_string::<i32>());
        (0..keys.len()).map(|at| (keys.value(at).to_owned(), values.value(at).to_owned())).collect()
    }

    #[test]
    fn attributes_of_gff3_and_gtf_are_entries() {
        let pairs = |entries: &[(&str, &str)]| -> Vec<(String, String)> {
            entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        let gff3 = "ID=gene1;Name=a%3Bb%20c;Parent=x,y;Note=5\" p=q;";
        let expected = [("ID", "gene1"), ("Name", "a;b c"), ("Parent", "x,y"), ("Note", "5\" p=q")];
        assert_eq!(attributes(gff3), pairs(&expected));
        let gtf = "gene_id \"g1\"; tag \"a\"; exon_number 3; note \"x; y = z\"; tag \"b\";";
        let expected = [("gene_id", "g1"), ("tag", "a,b"), ("exon_number", "3"), ("note", "x; y = z")];
        assert_eq!(attributes(gtf), pairs(&expected));
        assert_eq!(attributes(" ; ;"), []);
        assert_eq!(attributes("ID=50%"), pairs(&[("ID", "50%")]));
    }
}
