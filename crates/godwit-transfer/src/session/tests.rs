use super::*;

const BLOCK: u64 = BLOCK_BYTES;

fn work(size_bytes: u64) -> FileWork {
    FileWork { size_bytes, missing: RangeSet::of(0, block_count(size_bytes)) }
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn asked(actions: &[Action]) -> Vec<(StreamId, RequestId, Vec<Span>)> {
    let asks = actions.iter().filter_map(|action| match action {
        Action::Ask { stream, request, spans } => Some((*stream, *request, spans.clone())),
        _ => None,
    });
    asks.collect()
}

fn options(streams: u32) -> SessionOptions {
    SessionOptions { streams, ..SessionOptions::default() }
}

#[test]
fn a_transfer_of_nothing_is_done_at_once() {
    assert_eq!(Session::new(Vec::new(), options(4), ms(0)).1, [Action::Done]);
    let there = FileWork { size_bytes: 5, missing: RangeSet::default() };
    assert_eq!(Session::new(vec![there], options(4), ms(0)).1, [Action::Done]);
}

#[test]
fn a_file_that_is_all_there_is_proved_without_a_connection() {
    let there = FileWork { size_bytes: 3 * BLOCK, missing: RangeSet::default() };
    let (mut session, actions) = Session::new(vec![there], options(4), ms(0));
    assert_eq!(actions, [Action::Finish { file: 0 }]);
    assert_eq!(session.handle(ms(1), Event::Finished { file: 0 }), [Action::Done]);
}

#[test]
fn blocks_are_asked_for_once_and_what_a_lost_stream_had_goes_to_another() {
    let (mut session, actions) = Session::new(vec![work(40 * BLOCK)], options(2), ms(0));
    assert_eq!(actions.len(), 2);
    let mut asks = asked(&session.handle(ms(1), Event::Opened { stream: 0 }));
    asks.extend(asked(&session.handle(ms(1), Event::Opened { stream: 1 })));
    let mut seen = RangeSet::default();
    for span in asks.iter().flat_map(|ask| &ask.2) {
        for block in span.start..span.end {
            assert!(!seen.contains(block));
            seen.insert(block, block + 1);
        }
    }
    let first = asks.iter().find(|ask| ask.0 == 0).unwrap().2[0];
    session.handle(ms(2), Event::Arrived { stream: 0, file: 0, block: first.start });
    session.handle(ms(3), Event::Lost { stream: 0 });
    // Only what had not arrived is asked for again, by whoever is there.
    let mut again = RangeSet::default();
    let mut time = 4;
    let mut open: Vec<Span> = asks.iter().filter(|ask| ask.0 == 1).flat_map(|ask| ask.2.clone()).collect();
    while let Some(span) = open.pop() {
        for block in span.start..span.end {
            time += 1;
            for (stream, _, spans) in asked(&session.handle(ms(time), Event::Arrived { stream: 1, file: 0, block })) {
                assert_eq!(stream, 1);
                for span in &spans {
                    again.insert(span.start, span.end);
                }
                open.extend(spans);
            }
        }
    }
    assert!(!again.contains(first.start) && again.contains(first.start + 1));
    assert_eq!(session.handle(ms(time), Event::Finished { file: 0 }), [Action::Done]);
}

#[test]
fn a_damaged_block_is_asked_for_alone_and_not_for_ever() {
    let (mut session, _) = Session::new(vec![work(2 * BLOCK)], options(1), ms(0));
    session.handle(ms(1), Event::Opened { stream: 0 });
    session.handle(ms(2), Event::Arrived { stream: 0, file: 0, block: 0 });
    for time in 1..DAMAGED_AT_MOST {
        let actions = session.handle(ms(u64::from(time)), Event::Damaged { stream: 0, file: 0, block: 1 });
        assert_eq!(asked(&actions)[0].2, [Span { file: 0, start: 1, end: 2 }]);
    }
    let actions = session.handle(ms(9), Event::Damaged { stream: 0, file: 0, block: 1 });
    assert_eq!(actions, [Action::Refuse { file: 0 }, Action::Done]);
}

#[test]
fn a_path_that_is_back_is_used_within_a_second_and_silence_ends() {
    let (mut session, _) = Session::new(vec![work(BLOCK)], options(1), ms(0));
    let mut now = ms(0);
    for _ in 0..20 {
        session.handle(now, Event::Lost { stream: 0 });
        let next = session.wake_at().unwrap();
        assert!(next <= now + LONGEST_WAIT);
        now = next;
        assert_eq!(session.handle(now, Event::Tick), [Action::Open { stream: 0, source: 0 }]);
    }
    let end = SessionOptions::default().patience;
    assert!(session.handle(end, Event::Tick).contains(&Action::GiveUp));
    assert_eq!(session.wake_at(), None);
}

#[test]
fn a_request_that_stalls_is_asked_of_an_idle_stream_and_settles_once() {
    let (mut session, _) = Session::new(vec![work(BLOCK)], options(2), ms(0));
    assert_eq!(asked(&session.handle(ms(0), Event::Opened { stream: 0 })).len(), 1);
    assert!(asked(&session.handle(ms(0), Event::Opened { stream: 1 })).is_empty());
    let wake = session.wake_at().unwrap();
    let doubled = asked(&session.handle(wake, Event::Tick));
    assert_eq!((doubled.len(), doubled[0].0), (1, 1));
    assert_eq!(session.handle(wake, Event::Arrived { stream: 1, file: 0, block: 0 }), [Action::Done]);
}

#[test]
fn small_files_go_many_to_a_request() {
    let files = (0..100).map(|_| work(10_000)).collect();
    let (mut session, _) = Session::new(files, options(1), ms(0));
    let asks = asked(&session.handle(ms(0), Event::Opened { stream: 0 }));
    assert!(asks[0].2.len() > 50, "{asks:?}");
}

#[test]
fn a_file_that_is_gone_does_not_keep_the_others() {
    let (mut session, _) = Session::new(vec![work(BLOCK), work(BLOCK)], options(1), ms(0));
    session.handle(ms(0), Event::Opened { stream: 0 });
    assert!(!session.handle(ms(0), Event::Unavailable { file: 0 }).contains(&Action::Done));
    assert_eq!(session.handle(ms(0), Event::Arrived { stream: 0, file: 1, block: 0 }), [Action::Done]);
}

#[test]
fn blocks_that_the_source_disproves_are_fetched_again() {
    let there = FileWork { size_bytes: 4 * BLOCK, missing: RangeSet::of(0, 1) };
    let (mut session, _) = Session::new(vec![there], options(1), ms(0));
    session.handle(ms(0), Event::Opened { stream: 0 });
    let actions = session.handle(ms(1), Event::Arrived { stream: 0, file: 0, block: 0 });
    assert_eq!(actions, [Action::Finish { file: 0 }]);
    let actions = session.handle(ms(2), Event::Disproved { file: 0, blocks: RangeSet::of(2, 3) });
    assert_eq!(asked(&actions)[0].2, [Span { file: 0, start: 2, end: 3 }]);
    session.handle(ms(3), Event::Arrived { stream: 0, file: 0, block: 2 });
    assert_eq!(session.handle(ms(4), Event::Finished { file: 0 }), [Action::Done]);
}
