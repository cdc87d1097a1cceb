# Reads of a region as a data frame: Rscript reads.R URL DATASET REGION [TOKEN [CA.pem]]
#
# The Flight client is pyarrow, through reticulate, as in R's package arrow. RETICULATE_PYTHON names a Python with pyarrow.
words <- commandArgs(trailingOnly = TRUE)
token <- if (length(words) > 3) words[4]
authority <- if (length(words) > 4) paste(readLines(words[5]), collapse = "\n")

flight <- reticulate::import("pyarrow.flight", convert = FALSE)
as_bytes <- function(text) reticulate::import_builtins(convert = FALSE)$bytes(text, "utf8")

client <- if (is.null(authority)) flight$FlightClient(words[1]) else flight$FlightClient(words[1], tls_root_certs = as_bytes(authority))
shown <- if (is.null(token)) list() else list(reticulate::tuple(as_bytes("authorization"), as_bytes(paste("Bearer", token))))
options <- flight$FlightCallOptions(headers = shown)

columns <- c("name", "flags", "contig", "position", "cigar")
command <- jsonlite::toJSON(list(dataset = jsonlite::unbox(words[2]), regions = words[3], columns = columns))
info <- client$get_flight_info(flight$FlightDescriptor$for_command(as_bytes(command)), options)
rows <- function(endpoint) {
  # A column with nulls is a list with NULL for each; data frames need NA.
  columns <- reticulate::py_to_r(client$do_get(endpoint$ticket, options)$read_all()$to_pydict())
  as.data.frame(lapply(columns, function(column) if (is.list(column)) sapply(column, function(value) if (is.null(value)) NA else value) else column))
}
reads <- do.call(rbind, reticulate::iterate(info$endpoints, rows, simplify = FALSE))

reads$position <- reads$position + 1L
reads$cigar[is.na(reads$cigar)] <- "*"
write.table(reads, sep = "\t", quote = FALSE, row.names = FALSE, col.names = FALSE)
