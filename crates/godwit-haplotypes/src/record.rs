//! One record of a VCF file as slices of its line, and the record as vcfeval writes it.

/// A VCF record: slices of one line, without the line end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record<'l> {
    pub(crate) contig: &'l [u8],
    /// 0-based position of the first base of `reference`.
    pub(crate) start: i32,
    pub(crate) id: &'l [u8],
    pub(crate) reference: &'l [u8],
    /// Alternate alleles, separated by commas; `.` for none.
    pub(crate) alternate: &'l [u8],
    pub(crate) quality: &'l [u8],
    pub(crate) filter: &'l [u8],
    pub(crate) info: &'l [u8],
    /// The FORMAT column and the samples, separated by tabs; empty for a file without samples.
    pub(crate) samples: &'l [u8],
}

/// The value of a field that is missing.
pub(crate) const MISSING: &[u8] = b".";

impl<'l> Record<'l> {
    /// Splits a line into columns, and checks the columns that every record has.
    pub(crate) fn parse(line: &'l [u8]) -> Result<Self, &'static str> {
        let mut rest = Some(line);
        let mut column = || -> Result<&'l [u8], &'static str> {
            let text = rest.ok_or("it has fewer than 8 columns")?;
            let (column, after) = split_once(text, b'\t');
            rest = after;
            if column.is_empty() { Err("it has an empty column") } else { Ok(column) }
        };
        let (contig, position, id, reference) = (column()?, column()?, column()?, column()?);
        let (alternate, quality, filter, info) = (column()?, column()?, column()?, column()?);
        let position = std::str::from_utf8(position).ok().and_then(|digits| digits.parse::<i32>().ok());
        let pos_1based = position.filter(|position| *position >= 0).ok_or("its position is not a number")?;
        let record = Self {
            contig,
            start: pos_1based - 1,
            id,
            reference,
            alternate,
            quality,
            filter,
            info,
            samples: rest.unwrap_or_default(),
        };
        if record.alternates().any(<[u8]>::is_empty) {
            return Err("it has an empty alternate allele");
        }
        Ok(record)
    }

    /// Returns the 0-based end of the reference allele.
    pub(crate) fn end(&self) -> i32 {
        self.start.saturating_add(i32::try_from(self.reference.len()).unwrap_or(i32::MAX))
    }

    /// Returns the alternate alleles in their order.
    pub(crate) fn alternates(&self) -> impl Iterator<Item = &'l [u8]> + use<'l> {
        let text = if self.alternate == MISSING { None } else { Some(self.alternate) };
        text.into_iter().flat_map(|text| text.split(|byte| *byte == b','))
    }

    /// Returns the number of samples.
    pub(crate) fn sample_count(&self) -> usize {
        memchr::memchr_iter(b'\t', self.samples).count()
    }

    /// Returns the keys of the FORMAT column.
    fn format_keys(&self) -> impl Iterator<Item = &'l [u8]> + use<'l> {
        split_once(self.samples, b'\t').0.split(|byte| *byte == b':').filter(|key| !key.is_empty())
    }

    fn sample_column(&self, sample: usize) -> Option<&'l [u8]> {
        self.samples.split(|byte| *byte == b'\t').nth(sample + 1)
    }

    /// Returns the value of a FORMAT field of a sample; `None` if the record does not have the field.
    pub(crate) fn sample_value(&self, key: &[u8], sample: usize) -> Option<&'l [u8]> {
        let index = self.format_keys().position(|found| found == key)?;
        let column = self.sample_column(sample)?;
        Some(column.split(|byte| *byte == b':').nth(index).unwrap_or(MISSING))
    }

    /// Returns the value of an INFO field; empty for a flag, `None` if the record does not have the field.
    pub(crate) fn info_value(&self, key: &[u8]) -> Option<&'l [u8]> {
        self.info.split(|byte| *byte == b';').find_map(|item| {
            let (name, value) = split_once(item, b'=');
            (name == key).then_some(value.unwrap_or_default())
        })
    }

    /// Returns whether the FILTER column names a filter that the record failed.
    pub(crate) fn is_filtered(&self) -> bool {
        is_failed_filter(self.filter)
    }

    /// Returns whether the FT field of a sample names a filter that the sample failed.
    pub(crate) fn is_sample_filtered(&self, sample: usize) -> bool {
        self.sample_value(b"FT", sample).is_some_and(is_failed_filter)
    }

    /// Returns the first inconsistency between the FORMAT column and the samples.
    pub(crate) fn check_samples(&self, sample_count: usize) -> Result<(), &'static str> {
        if self.sample_count() != sample_count {
            return Err("its number of samples differs from that of the #CHROM line");
        }
        if sample_count == 0 {
            return Ok(());
        }
        let keys = split_once(self.samples, b'\t').0.split(|byte| *byte == b':').count();
        let columns = self.samples.split(|byte| *byte == b'\t').skip(1);
        for column in columns {
            if column.is_empty() {
                return Err("it has an empty column");
            }
            if memchr::memchr_iter(b':', column).count() + 1 > keys {
                return Err("a sample has more values than FORMAT has keys");
            }
        }
        Ok(())
    }

    /// Appends the record as vcfeval writes it: without missing values at the end of a sample, and with GT first.
    /// INFO fields named in `removed` are left out, and `added` fields follow the others; an empty value is a flag.
    pub(crate) fn write_to(&self, out: &mut Vec<u8>, removed: &[&str], added: &[(&str, &str)]) {
        out.extend_from_slice(self.contig);
        out.push(b'\t');
        out.extend_from_slice((i64::from(self.start) + 1).to_string().as_bytes());
        for column in [self.id, self.reference, self.alternate, self.quality] {
            out.push(b'\t');
            out.extend_from_slice(column);
        }
        out.push(b'\t');
        write_filter(self.filter, out);
        out.push(b'\t');
        self.write_info(out, removed, added);
        if !self.samples.is_empty() {
            self.write_samples(out);
        }
        out.push(b'\n');
    }

    fn write_info(&self, out: &mut Vec<u8>, removed: &[&str], added: &[(&str, &str)]) {
        let first = out.len();
        for item in self.info.split(|byte| *byte == b';').filter(|_| self.info != MISSING) {
            let (key, value) = split_once(item, b'=');
            if removed.iter().any(|name| name.as_bytes() == key) {
                continue;
            }
            write_info_item(out, first, key, value.unwrap_or_default());
        }
        for (key, value) in added {
            write_info_item(out, first, key.as_bytes(), value.as_bytes());
        }
        if out.len() == first {
            out.extend_from_slice(MISSING);
        }
    }

    fn write_samples(&self, out: &mut Vec<u8>) {
        let keys: Vec<&[u8]> = self.format_keys().collect();
        let mut order: Vec<usize> = (0..keys.len()).collect();
        if let Some(genotype) = keys.iter().position(|key| *key == b"GT") {
            order[..=genotype].rotate_right(1);
        }
        out.push(b'\t');
        write_joined(out, order.iter().map(|index| keys[*index]));
        let mut values = Vec::with_capacity(keys.len());
        for column in self.samples.split(|byte| *byte == b'\t').skip(1) {
            values.clear();
            values.extend(column.split(|byte| *byte == b':'));
            values.resize(keys.len(), MISSING);
            let last = order.iter().rposition(|index| values[*index] != MISSING);
            out.push(b'\t');
            match last {
                Some(last) => write_joined(out, order[..=last].iter().map(|index| values[*index])),
                None => out.extend_from_slice(MISSING),
            }
        }
    }
}

/// Appends the FILTER column in the form in which vcfeval keeps it: PASS only where it is the last filter.
pub(crate) fn write_filter(filter: &[u8], out: &mut Vec<u8>) {
    let mut kept: Vec<&[u8]> = Vec::new();
    for item in filter.split(|byte| *byte == b';').filter(|item| *item != MISSING) {
        if item == b"PASS" {
            kept.clear();
        } else if let Some(pass) = kept.iter().position(|item| *item == b"PASS") {
            kept.remove(pass);
        }
        kept.push(item);
    }
    if kept.is_empty() {
        out.extend_from_slice(MISSING);
    }
    for (index, item) in kept.iter().enumerate() {
        if index > 0 {
            out.push(b';');
        }
        out.extend_from_slice(item);
    }
}

fn write_info_item(out: &mut Vec<u8>, first: usize, key: &[u8], value: &[u8]) {
    if out.len() > first {
        out.push(b';');
    }
    out.extend_from_slice(key);
    if !value.is_empty() {
        out.push(b'=');
        out.extend_from_slice(value);
    }
}

fn write_joined<'v>(out: &mut Vec<u8>, values: impl Iterator<Item = &'v [u8]>) {
    for (index, value) in values.enumerate() {
        if index > 0 {
            out.push(b':');
        }
        out.extend_from_slice(value);
    }
}

fn is_failed_filter(text: &[u8]) -> bool {
    text.split(|byte| *byte == b';').any(|filter| filter != b"PASS" && filter != MISSING)
}

/// Splits at the first separator; the second part is `None` if there is no separator.
pub(crate) fn split_once(text: &[u8], separator: u8) -> (&[u8], Option<&[u8]>) {
    match memchr::memchr(separator, text) {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    }
}
