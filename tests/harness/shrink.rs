//! Reduction of a failing file: records are removed while it still fails.

use crate::sam::SamText;

/// Returns a part of `case` for which `fails` still holds, after at most `budget` tries. Delta debugging (Zeller and
/// Hildebrandt 2002, doi:10.1109/32.988498) without its second half: ranges of records are left out, and halved when none
/// can be.
pub fn shrink_failing_case(case: &SamText, budget: usize, mut fails: impl FnMut(&SamText) -> bool) -> SamText {
    let mut smallest = case.clone();
    let mut run = smallest.records.len() / 2;
    let mut tries = 0;
    while run > 0 {
        let mut start = 0;
        let mut smaller = false;
        while start < smallest.records.len() && tries < budget {
            let mut candidate = smallest.clone();
            candidate.records.drain(start..(start + run).min(smallest.records.len()));
            tries += 1;
            if !candidate.records.is_empty() && fails(&candidate) {
                smallest = candidate;
                smaller = true;
            } else {
                start += run;
            }
        }
        if tries >= budget {
            break;
        }
        run = if smaller { run.min(smallest.records.len()) } else { run / 2 };
    }
    smallest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_records_that_matter_stay() {
        let records = (0..50).map(|number| number.to_string()).collect();
        let case = SamText { header: vec!["@HD".to_owned()], records };
        let has = |case: &SamText, record: &str| case.records.iter().any(|line| line == record);
        let small = shrink_failing_case(&case, 500, |case| has(case, "3") && has(case, "41"));
        assert_eq!(small.records, ["3", "41"]);
        assert_eq!(small.header, case.header);
    }
}
