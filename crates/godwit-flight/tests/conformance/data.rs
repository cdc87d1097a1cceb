//! Batches of many types, and the file of them in Arrow's JSON for integration tests, written by the Go implementation.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use arrow_array::builder::{Int32Builder, ListBuilder, StringBuilder};
use arrow_array::types::{Int8Type, Int32Type};
use arrow_array::{
    ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, DictionaryArray, FixedSizeBinaryArray,
    Float32Array, Float64Array, Int8Array, Int64Array, LargeStringArray, RecordBatch, StringArray, StructArray,
    TimestampMicrosecondArray, UInt16Array, UInt64Array,
};
use arrow_ipc::writer::FileWriter;
use arrow_schema::{DataType, Field};
use godwit_tests::tool::run_checked;

/// Makes batches of one schema, of the given rows each; a quarter of the values of nullable columns are null.
pub fn batches(rows: &[usize]) -> Vec<RecordBatch> {
    rows.iter().enumerate().map(|(index, rows)| batch(index, *rows)).collect()
}

fn batch(index: usize, rows: usize) -> RecordBatch {
    let some = |row: usize| !(row + index).is_multiple_of(4);
    let numbers = |row: usize| (row * 37 + index * 1009) as i64;
    let mut lists = ListBuilder::new(Int32Builder::new());
    let mut names = StringBuilder::new();
    for row in 0..rows {
        (0..row % 4).for_each(|value| lists.values().append_option(some(value).then_some(value as i32)));
        lists.append(some(row));
        names.append_option(some(row).then(|| format!("read {index}/{row} ü")));
    }
    let inner: ArrayRef = Arc::new(Int64Array::from_iter((0..rows).map(|row| some(row).then(|| numbers(row)))));
    let pair = StructArray::from(vec![
        (Arc::new(Field::new("inner", DataType::Int64, true)), inner),
        (
            Arc::new(Field::new("flag", DataType::Boolean, false)),
            Arc::new(BooleanArray::from_iter((0..rows).map(|row| Some(row % 3 == 0)))) as ArrayRef,
        ),
    ]);
    // Every batch has the same dictionary values: Go's JSON writer requires it.
    let values = Arc::new(StringArray::from(vec!["chr1", "chr2", "chrM"]));
    let groups: ArrayRef = Arc::new(DictionaryArray::<Int8Type>::new(
        Int8Array::from_iter((0..rows).map(|row| some(row).then_some((row % 3) as i8))),
        values,
    ));
    let fixed = FixedSizeBinaryArray::try_from_iter((0..rows.max(1)).map(|row| [row as u8; 5])).expect("of one length");
    let columns: [(&str, ArrayRef, bool); 16] = [
        ("int8", Arc::new(Int8Array::from_iter((0..rows).map(|row| some(row).then_some(row as i8)))), true),
        ("uint16", Arc::new(UInt16Array::from_iter_values((0..rows).map(|row| row as u16))), false),
        ("int64", Arc::new(Int64Array::from_iter_values((0..rows).map(numbers))), false),
        ("uint64", Arc::new(UInt64Array::from_iter_values((0..rows).map(|row| u64::MAX - row as u64))), false),
        ("float32", Arc::new(Float32Array::from_iter_values((0..rows).map(|row| row as f32 / 8.0))), false),
        ("float64", Arc::new(Float64Array::from_iter((0..rows).map(|row| some(row).then(|| row as f64 / 4.0)))), true),
        ("bool", Arc::new(BooleanArray::from_iter((0..rows).map(|row| some(row).then_some(row % 2 == 0)))), true),
        ("text", Arc::new(names.finish()), true),
        ("large", Arc::new(LargeStringArray::from_iter_values((0..rows).map(|row| format!("{row}")))), false),
        ("bytes", Arc::new(BinaryArray::from_iter_values((0..rows).map(|row| vec![row as u8; row % 9]))), false),
        ("fixed", Arc::new(fixed.slice(0, rows)), false),
        ("date", Arc::new(Date32Array::from_iter_values((0..rows).map(|row| row as i32))), false),
        (
            "time",
            Arc::new(TimestampMicrosecondArray::from_iter_values((0..rows).map(numbers)).with_timezone("UTC")),
            false,
        ),
        (
            "decimal",
            Arc::new(
                Decimal128Array::from_iter_values((0..rows).map(|row| row as i128 * 12345))
                    .with_precision_and_scale(20, 3)
                    .expect("within the precision"),
            ),
            false,
        ),
        ("pair", Arc::new(pair), false),
        ("list", Arc::new(lists.finish()), true),
    ];
    let columns = columns.into_iter().chain([("group", groups, true)]);
    RecordBatch::try_from_iter_with_nullable(columns).expect("columns of one length")
}

/// Makes batches with a dictionary whose values differ from batch to batch.
pub fn growing_dictionary(count: usize) -> Vec<RecordBatch> {
    let batch = |index: usize| {
        let groups: DictionaryArray<Int32Type> =
            (0..50).map(|row| ["a", "b", "c", "d"][(row + index) % (1 + index % 4)]).collect();
        let groups: ArrayRef = Arc::new(groups);
        RecordBatch::try_from_iter_with_nullable([("group", groups, false)]).expect("one column")
    };
    (0..count).map(batch).collect()
}

/// Writes the batches as JSON by way of an Arrow file, which a program of the Go implementation translates.
pub fn write_json(batches: &[RecordBatch], translator: &Path, directory: &Path) -> PathBuf {
    let (arrow, json) = (directory.join("batches.arrow"), directory.join("batches.json"));
    let file = File::create(&arrow).expect("it can be created");
    let mut writer = FileWriter::try_new(file, &batches[0].schema()).expect("the schema can be written");
    batches.iter().for_each(|batch| writer.write(batch).expect("the batch can be written"));
    writer.finish().expect("it can be finished");
    let mut command = Command::new(translator);
    run_checked(command.args(["-mode", "ARROW_TO_JSON", "-arrow"]).arg(&arrow).arg("-json").arg(&json));
    json
}
