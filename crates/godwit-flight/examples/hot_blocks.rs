//! Serves the blocks of a table, some of which are hot: what a database in which rows still change has to do before it can
//! send columns.
//!
//! `hot_blocks FILE` reads an Arrow IPC stream, prints its address, and serves until its stdin is closed. The ticket of
//! `DoGet` is a percentage: as many blocks, spread evenly, are stored as rows and converted to columns when they are sent;
//! the others are stored as columns and sent unchanged. Rows are those of [`arrow_row`]. The benchmarks `order_line` and
//! `export` measure with it.

use std::error::Error;
use std::fs::File;
use std::io::{BufReader, Read as _, Write as _};
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_ipc::reader::StreamReader;
use arrow_row::{RowConverter, Rows, SortField};
use arrow_schema::SchemaRef;
use bytes::Bytes;
use godwit_dataset::{BatchReader, DatasetError, Principal};
use godwit_flight::{
    Address, ConnectionSecurity, DataPlane, Download, PutResultStream, Routes, Server, Status, TransportOptions,
    Upload, stream_batches,
};

/// Rows of a block: about 1 MB, as in the published measurement.
const BLOCK_ROWS: usize = 16_384;

/// A block, in both forms.
struct Block {
    columns: RecordBatch,
    rows: Rows,
}

/// A table in memory.
struct Table {
    schema: SchemaRef,
    converter: RowConverter,
    blocks: Vec<Block>,
}

impl Table {
    fn read(path: &str) -> Result<Self, Box<dyn Error>> {
        let reader = StreamReader::try_new(BufReader::new(File::open(path)?), None)?;
        let schema = reader.schema();
        let fields = schema.fields().iter().map(|field| SortField::new(field.data_type().clone()));
        let converter = RowConverter::new(fields.collect())?;
        let mut blocks = Vec::new();
        for batch in reader {
            let batch = batch?;
            for start in (0..batch.num_rows()).step_by(BLOCK_ROWS) {
                let columns = batch.slice(start, BLOCK_ROWS.min(batch.num_rows() - start));
                let rows = converter.convert_columns(columns.columns())?;
                blocks.push(Block { columns, rows });
            }
        }
        Ok(Self { schema, converter, blocks })
    }

    /// Returns a block as columns, converted from its rows where it is hot.
    fn block(&self, at: usize, percent: usize) -> Result<RecordBatch, DatasetError> {
        let block = &self.blocks[at];
        if (at + 1) * percent / 100 == at * percent / 100 {
            return Ok(block.columns.clone());
        }
        let columns = self.converter.convert_rows(&block.rows);
        columns
            .and_then(|columns| RecordBatch::try_new(self.schema.clone(), columns))
            .map_err(|error| DatasetError::Data(error.into()))
    }
}

struct Plane(Arc<Table>);

impl DataPlane for Plane {
    async fn download(&self, _: Principal, ticket: Bytes) -> Result<Download, Status> {
        let percent = std::str::from_utf8(&ticket).ok().and_then(|text| text.parse().ok());
        let percent = percent.filter(|percent| *percent <= 100);
        let percent: usize = percent.ok_or_else(|| Status::not_found("a ticket is a number of percent"))?;
        let table = self.0.clone();
        let blocks = 0..table.blocks.len();
        let schema = table.schema.clone();
        let batches: BatchReader = Box::new(blocks.map(move |at| table.block(at, percent)));
        Ok(stream_batches(schema, batches))
    }

    async fn upload(&self, _: Principal, _: Upload) -> Result<PutResultStream, Status> {
        Err(Status::unimplemented("nothing is taken here"))
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("usage: hot_blocks FILE")?;
    let plane = Plane(Arc::new(Table::read(&path)?));
    let address = Address::Tcp(([127, 0, 0, 1], 0).into());
    let server =
        Server::bind(&address, plane, Routes::default(), ConnectionSecurity::default(), TransportOptions::default())
            .await?;
    println!("{}", server.address());
    std::io::stdout().flush()?;
    // tokio's stdin would keep the process from ending.
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    server.serve().await;
    Ok(())
}
