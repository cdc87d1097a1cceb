//! Searches shared among workers, against NCBI's own applications in one pass over the same database.

mod alias;
mod bad_queries;
mod bulk;
mod data;
mod hits;
mod identity;
mod matrix;
mod nodes;
mod real_data;
mod refusals;
mod resume;
mod workers;
