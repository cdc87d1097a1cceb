//! The parameters of an htsget request, from the query string of a `GET` request or the body of a `POST` request.
//!
//! Positions are 0-based and intervals half-open, as in the htsget specification.

use std::collections::HashMap;

use godwit_dataset::percent_decode;
use godwit_model::Region;
use serde::Deserialize;

use super::error::HtsgetError;

/// Maximum number of regions in a request.
const MAX_REGIONS: usize = 10_000;
/// Value of `referenceName` that requests reads without a contig.
pub(super) const UNPLACED_REFERENCE_NAME: &str = "*";
/// SAM fields that the parameter `fields` may list (htsget 1.3, "fields").
const SAM_FIELDS: [&str; 11] =
    ["QNAME", "FLAG", "RNAME", "POS", "MAPQ", "CIGAR", "RNEXT", "PNEXT", "TLEN", "SEQ", "QUAL"];

/// The parsed parameters of a request.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct HtsgetRequest {
    /// The requested file format; `None` if the request names none.
    pub(super) format: Option<String>,
    /// True if only the header is requested.
    pub(super) header_only: bool,
    /// The requested regions; `None` if the whole file or only the header is requested.
    pub(super) regions: Option<Vec<Region>>,
}

/// The JSON body of a `POST` request.
#[derive(Debug, Default, Deserialize)]
struct RequestBody {
    format: Option<String>,
    class: Option<String>,
    fields: Option<Vec<String>>,
    tags: Option<Vec<String>>,
    notags: Option<Vec<String>>,
    regions: Option<Vec<RequestRegion>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RequestRegion {
    reference_name: String,
    start: Option<u32>,
    end: Option<u32>,
}

impl HtsgetRequest {
    /// Parses the query string of a `GET` request.
    pub(super) fn from_query(query: &str) -> Result<Self, HtsgetError> {
        let mut words: HashMap<String, String> = HashMap::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let decoded = |text: &str| {
                percent_decode(&text.replace('+', " "))
                    .ok_or_else(|| HtsgetError::invalid_input(format!("{text:?} has invalid percent-encoding")))
            };
            if words.insert(decoded(name)?, decoded(value)?).is_some() {
                return Err(HtsgetError::invalid_input(format!("{name} is given twice; use POST for several regions")));
            }
        }
        let number = |name: &str| {
            let Some(text) = words.get(name) else { return Ok(None) };
            let parsed = text.parse::<u32>();
            parsed
                .map(Some)
                .map_err(|_| HtsgetError::invalid_input(format!("{name} is {text:?}, which is not a whole number")))
        };
        let list = |name: &str| words.get(name).map(|text| text.split(',').map(str::to_owned).collect());
        let (start, end) = (number("start")?, number("end")?);
        let regions = match words.get("referenceName") {
            Some(name) => Some(vec![RequestRegion { reference_name: name.clone(), start, end }]),
            None if start.is_some() || end.is_some() => {
                return Err(HtsgetError::invalid_input("start and end require a referenceName"));
            }
            None => None,
        };
        Self::from_parameters(RequestBody {
            format: words.get("format").cloned(),
            class: words.get("class").cloned(),
            fields: list("fields"),
            tags: list("tags"),
            notags: list("notags"),
            regions,
        })
    }

    /// Parses the JSON body of a `POST` request.
    pub(super) fn from_body(body: &[u8]) -> Result<Self, HtsgetError> {
        let body: RequestBody = serde_json::from_slice(body).map_err(|error| {
            HtsgetError::invalid_input(format!("the body of the request cannot be parsed: {error}"))
        })?;
        if body.regions.as_ref().is_some_and(Vec::is_empty) {
            return Err(HtsgetError::invalid_input("the list of regions is empty; omit it to request everything"));
        }
        Self::from_parameters(body)
    }

    fn from_parameters(body: RequestBody) -> Result<Self, HtsgetError> {
        let header_only = match body.class.as_deref() {
            None => false,
            Some("header") => true,
            Some(other) => {
                return Err(HtsgetError::invalid_input(format!("class is {other:?}; only header is supported")));
            }
        };
        if header_only && body.regions.is_some() {
            return Err(HtsgetError::invalid_input("class=header cannot be combined with regions; omit one of them"));
        }
        if let Some(unknown) = body.fields.iter().flatten().find(|field| !SAM_FIELDS.contains(&field.as_str())) {
            return Err(HtsgetError::invalid_input(format!(
                "{unknown:?} is not a field; the fields are {}",
                SAM_FIELDS.join(",")
            )));
        }
        let (tags, notags) = (body.tags.unwrap_or_default(), body.notags.unwrap_or_default());
        if let Some(both) = tags.iter().find(|tag| !tag.is_empty() && notags.contains(tag)) {
            return Err(HtsgetError::invalid_input(format!(
                "the tag {both} is in both tags and notags; remove it from one of them"
            )));
        }
        let regions = body.regions.map(|regions| {
            if regions.len() > MAX_REGIONS {
                let problem = format!("the request has {} regions; the limit is {MAX_REGIONS}", regions.len());
                return Err(HtsgetError::PayloadTooLarge { problem });
            }
            regions.into_iter().map(parse_region).collect()
        });
        Ok(Self { format: body.format, header_only, regions: regions.transpose()? })
    }
}

fn parse_region(region: RequestRegion) -> Result<Region, HtsgetError> {
    let RequestRegion { reference_name: contig, start, end } = region;
    if contig == UNPLACED_REFERENCE_NAME && (start.is_some() || end.is_some()) {
        return Err(HtsgetError::invalid_input("the reference name * takes no start and end"));
    }
    let within = |position: Option<u32>, without| position.unwrap_or(without).min(Region::OPEN_END);
    let (start, end) = (within(start, 0), within(end, Region::OPEN_END));
    if start > end {
        let problem = format!("the range from {start} to {end} of {contig} ends before it starts");
        return Err(HtsgetError::InvalidRange { problem });
    }
    Ok(Region { contig, start, end })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error_name(outcome: Result<HtsgetRequest, HtsgetError>) -> &'static str {
        outcome.map_or_else(|error| error.name_and_status().0, |_| "fine")
    }

    #[test]
    fn a_query_and_a_body_ask_the_same() {
        let query = "format=BAM&referenceName=chr%3a1%2B&start=5&end=9&fields=QNAME,SEQ&tags=&notags=NM&other=x";
        let body = br#"{"format":"BAM","fields":["QNAME"],"notags":["NM"],"regions":[{"referenceName":"chr:1+","start":5,"end":9}]}"#;
        let wanted = Region { contig: "chr:1+".to_owned(), start: 5, end: 9 };
        let expected =
            HtsgetRequest { format: Some("BAM".to_owned()), header_only: false, regions: Some(vec![wanted]) };
        assert_eq!(HtsgetRequest::from_query(query).unwrap(), expected);
        assert_eq!(HtsgetRequest::from_body(body).unwrap(), expected);
        assert_eq!(HtsgetRequest::from_query("").unwrap(), HtsgetRequest::default());
        assert_eq!(HtsgetRequest::from_body(b"{}").unwrap(), HtsgetRequest::default());
        assert!(HtsgetRequest::from_query("class=header").unwrap().header_only);
        let open = HtsgetRequest::from_query("referenceName=a&start=7").unwrap().regions.unwrap();
        assert_eq!(open, [Region { contig: "a".to_owned(), start: 7, end: Region::OPEN_END }]);
    }

    #[test]
    fn invalid_requests_are_rejected_with_the_error_name_of_the_specification() {
        for query in [
            "start=5",
            "end=5",
            "referenceName=a&start=x",
            "referenceName=a&start=-1",
            "referenceName=a&start=4294967296",
            "referenceName=*&start=1",
            "referenceName=a&referenceName=b",
            "class=body",
            "class=header&referenceName=a",
            "fields=QNAME,NOPE",
            "tags=NM&notags=MD,NM",
            "referenceName=%zz",
            "referenceName=%ff",
        ] {
            assert_eq!(error_name(HtsgetRequest::from_query(query)), "InvalidInput", "{query}");
        }
        assert_eq!(error_name(HtsgetRequest::from_query("referenceName=a&start=9&end=5")), "InvalidRange");
        assert_eq!(error_name(HtsgetRequest::from_query("referenceName=a&start=5&end=5")), "fine");
        for body in [
            &b""[..],
            b"[]",
            b"{\"regions\":[]}",
            b"{\"regions\":[{\"start\":1}]}",
            b"{\"regions\":[{\"referenceName\":\"a\",\"start\":-1}]}",
        ] {
            assert_eq!(error_name(HtsgetRequest::from_body(body)), "InvalidInput", "{}", String::from_utf8_lossy(body));
        }
        let many = vec![r#"{"referenceName":"a"}"#; MAX_REGIONS + 1].join(",");
        assert_eq!(
            error_name(HtsgetRequest::from_body(format!("{{\"regions\":[{many}]}}").as_bytes())),
            "PayloadTooLarge"
        );
    }
}
