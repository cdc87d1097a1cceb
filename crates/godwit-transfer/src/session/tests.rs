use super::*;
use crate::tree::BLOCK_BYTES;

const BLOCK: u64 = BLOCK_BYTES;

fn finish() -> Action {
    Action::Finish { file: 0, sources: Sources::only(0) }
}

fn work(size_bytes: u64) -> FileWork {
    FileWork { size_bytes, missing: RangeSet::of(0, block_count(size_bytes)), sources: Sources::only(0) }
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn asked(actions: &[Action]) -> Vec<(StreamId, RequestId, Vec<Span>)> {
    let asks = actions.iter().filter_map(|action| match action {
        Action::Ask { stream, request, spans, .. } => Some((*stream, *request, spans.clone())),
        _ => None,
    });
    asks.collect()
}

/// So many blocks of a file for each of so many streams.
fn ahead(each: u64, streams: u64) -> Vec<Vec<Span>> {
    (0..streams).map(|stream| vec![Span { file: 0, start: stream * each, end: (stream + 1) * each }]).collect()
}

fn options(streams: u32) -> SessionOptions {
    SessionOptions { streams, ..SessionOptions::default() }
}

#[test]
fn a_transfer_of_nothing_is_done_at_once() {
    assert_eq!(Session::new(Vec::new(), options(4), ms(0)).1, [Action::Done]);
    let there = FileWork { size_bytes: 5, missing: RangeSet::default(), sources: Sources::only(0) };
    assert_eq!(Session::new(vec![there], options(4), ms(0)).1, [Action::Done]);
}

#[test]
fn a_file_that_is_all_there_is_proved_without_a_connection() {
    let there = FileWork { size_bytes: 3 * BLOCK, missing: RangeSet::default(), sources: Sources::only(0) };
    let (mut session, actions) = Session::new(vec![there], options(4), ms(0));
    assert_eq!(actions, [finish()]);
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
fn what_a_stream_was_asked_for_ahead_is_its_first_request_and_of_nobody_else() {
    let options = SessionOptions { ahead: ahead(3, 2), ..options(2) };
    let (mut session, _) = Session::new(vec![work(40 * BLOCK)], options, ms(0));
    let second = session.handle(ms(1), Event::Opened { stream: 1 });
    let (stream, _, spans) = asked(&second)[0].clone();
    assert_eq!((stream, &spans[..]), (1, &[Span { file: 0, start: 3, end: 6 }][..]));
    let is_ahead = |actions: &[Action]| {
        let asks = actions.iter().filter_map(|action| match action {
            Action::Ask { ahead, .. } => Some(*ahead),
            _ => None,
        });
        asks.collect::<Vec<_>>()
    };
    assert_eq!(is_ahead(&second), [true, false]);
    // The other stream's are left to it, and go to others only when it is lost.
    assert!(asked(&second)[1].2.iter().all(|span| span.start >= 6));
    let lost = session.handle(ms(2), Event::Lost { stream: 0 });
    assert_eq!(asked(&lost), []);
    let mut next = Vec::new();
    for block in 3..6 {
        next.extend(session.handle(ms(3), Event::Arrived { stream: 1, file: 0, block }));
    }
    assert!(is_ahead(&next).iter().all(|ahead| !ahead), "{next:?}");
    assert_eq!(asked(&next)[0].2[0].start, 0);
    let again = session.handle(ms(200), Event::Tick);
    assert_eq!(again, [Action::Open { stream: 0, source: 0 }]);
    assert!(!is_ahead(&session.handle(ms(201), Event::Opened { stream: 0 }))[0]);
}

#[test]
fn a_file_of_which_all_was_asked_for_ahead_is_settled_by_what_comes() {
    let options = SessionOptions { ahead: ahead(1, 2), ..options(4) };
    let (mut session, _) = Session::new(vec![work(2 * BLOCK)], options, ms(0));
    for stream in 0..4 {
        let asks = asked(&session.handle(ms(1), Event::Opened { stream }));
        assert_eq!(asks.len(), usize::from(stream < 2));
    }
    assert_eq!(session.handle(ms(2), Event::Arrived { stream: 0, file: 0, block: 0 }), []);
    assert_eq!(session.handle(ms(2), Event::Arrived { stream: 1, file: 0, block: 1 }), [finish()]);
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
    let (mut wake, mut doubled) = (ms(0), Vec::new());
    while doubled.is_empty() && wake < ms(10_000) {
        wake = session.wake_at().unwrap();
        doubled = asked(&session.handle(wake, Event::Tick));
    }
    assert_eq!((doubled.len(), doubled[0].0), (1, 1));
    assert!(wake >= STALLED);
    assert_eq!(session.handle(wake, Event::Arrived { stream: 1, file: 0, block: 0 }), [Action::Done]);
}

#[test]
fn questions_go_over_the_stream_that_has_brought_soonest_what_it_was_asked_for() {
    let (mut session, _) = Session::new(vec![work(400 * BLOCK)], options(3), ms(0));
    assert_eq!(session.soonest(ms(0), 0), None);
    for stream in 0..2 {
        session.handle(ms(0), Event::Opened { stream });
    }
    let bring = |session: &mut Session, stream: StreamId, at: u64| {
        let outstanding = &session.streams[stream as usize].requests.values().next().unwrap().outstanding;
        let block = outstanding[&0].iter().next().unwrap().0;
        session.handle(ms(at), Event::Arrived { stream, file: 0, block });
    };
    for at in 1..100 {
        bring(&mut session, 1, 10 * at);
        if at % 30 == 0 {
            bring(&mut session, 0, 10 * at);
        }
    }
    assert_eq!((session.soonest(ms(1000), 0), session.soonest(ms(1000), 1)), (Some(1), None));
}

#[test]
fn a_slow_stream_is_not_waited_for_at_the_end() {
    let (mut session, _) = Session::new(vec![work(400 * BLOCK)], options(2), ms(0));
    let mut waiting: Vec<Vec<(RequestId, Span)>> = vec![Vec::new(); 2];
    let take = |actions: &[Action], waiting: &mut Vec<Vec<(RequestId, Span)>>| {
        for (stream, request, spans) in asked(actions) {
            waiting[stream as usize].extend(spans.into_iter().map(|span| (request, span)));
        }
        actions.iter().any(|action| *action == finish())
    };
    for stream in 0..2 {
        take(&session.handle(ms(0), Event::Opened { stream }), &mut waiting);
    }
    // The first brings a block in each millisecond; the second one in each ten, and one in 400 from the 500th on.
    let mut ended = None;
    for at in 1..20_000_u64 {
        for stream in 0..2_usize {
            let each = match (stream, at) {
                (0, _) => 1,
                (_, ..500) => 10,
                _ => 400,
            };
            if at % each > 0 {
                continue;
            }
            let Some((request, span)) = waiting[stream].first_mut() else { continue };
            let (request, file, block) = (*request, span.file, span.start);
            span.start += 1;
            let is_over = span.start == span.end;
            if is_over {
                waiting[stream].remove(0);
            }
            let stream = stream as StreamId;
            let mut done = take(&session.handle(ms(at), Event::Arrived { stream, file, block }), &mut waiting);
            if is_over && !waiting[stream as usize].iter().any(|(other, _)| *other == request) {
                done |= take(&session.handle(ms(at), Event::Ended { stream, request }), &mut waiting);
            }
            if done {
                ended.get_or_insert(at);
            }
        }
        if ended.is_some() {
            break;
        }
        take(&session.handle(ms(at), Event::Tick), &mut waiting);
    }
    // The second one alone would take seconds for what it has been asked for.
    assert!(ended.is_some_and(|at| at < 1500), "{ended:?}");
}

#[test]
fn small_files_go_many_to_a_request() {
    let files = (0..1000).map(|_| work(10_000)).collect();
    let (mut session, _) = Session::new(files, options(1), ms(0));
    let asks = asked(&session.handle(ms(0), Event::Opened { stream: 0 }));
    assert!(asks[0].2.len() > 50, "{asks:?}");
}

#[test]
fn a_file_that_is_gone_does_not_keep_the_others() {
    let (mut session, _) = Session::new(vec![work(BLOCK), work(BLOCK)], options(1), ms(0));
    session.handle(ms(0), Event::Opened { stream: 0 });
    assert!(!session.handle(ms(0), Event::Unavailable { file: 0, source: 0 }).contains(&Action::Done));
    assert_eq!(session.handle(ms(0), Event::Arrived { stream: 0, file: 1, block: 0 }), [Action::Done]);
}

#[test]
fn blocks_that_the_source_disproves_are_fetched_again() {
    let there = FileWork { size_bytes: 4 * BLOCK, missing: RangeSet::of(0, 1), sources: Sources::only(0) };
    let (mut session, _) = Session::new(vec![there], options(1), ms(0));
    session.handle(ms(0), Event::Opened { stream: 0 });
    let actions = session.handle(ms(1), Event::Arrived { stream: 0, file: 0, block: 0 });
    assert_eq!(actions, [finish()]);
    let actions = session.handle(ms(2), Event::Disproved { file: 0, blocks: RangeSet::of(2, 3), source: 0 });
    assert_eq!(asked(&actions)[0].2, [Span { file: 0, start: 2, end: 3 }]);
    session.handle(ms(3), Event::Arrived { stream: 0, file: 0, block: 2 });
    assert_eq!(session.handle(ms(4), Event::Finished { file: 0 }), [Action::Done]);
}

#[test]
fn what_was_asked_for_is_taken_when_a_block_cannot_be_written_and_nothing_more_is_asked() {
    let (mut session, _) = Session::new(vec![work(40 * BLOCK)], options(2), ms(0));
    let mut asks = asked(&session.handle(ms(1), Event::Opened { stream: 0 }));
    asks.extend(asked(&session.handle(ms(1), Event::Opened { stream: 1 })));
    let (stream, request, _) = asks.pop().unwrap();
    assert_eq!(session.handle(ms(2), Event::Unwritable { stream, request: Some(request) }), []);
    let last = asks.last().unwrap().1;
    for (stream, request, spans) in asks {
        for block in spans.iter().flat_map(|span| span.start..span.end) {
            let actions = session.handle(ms(3), Event::Arrived { stream, file: 0, block });
            let is_last = request == last && block + 1 == spans[0].end;
            assert_eq!(actions, if is_last { vec![Action::Stop] } else { Vec::new() });
        }
    }
    assert_eq!(session.wake_at(), None);
}

#[test]
fn what_does_not_come_any_more_does_not_keep_a_full_disk_from_being_told() {
    let (mut session, _) = Session::new(vec![work(40 * BLOCK)], options(2), ms(0));
    session.handle(ms(1), Event::Opened { stream: 0 });
    session.handle(ms(1), Event::Opened { stream: 1 });
    assert_eq!(session.handle(ms(2), Event::Unwritable { stream: 0, request: None }), []);
    let wake = session.wake_at().unwrap();
    assert_eq!((wake, session.handle(wake, Event::Tick)), (ms(2) + LAST_PATIENCE, vec![Action::Stop]));
}

/// A file of so many blocks that three sources have, over one stream of each.
fn of_three(blocks: u64) -> (Session, Vec<Action>) {
    let sources = Sources::only(0).and(1).and(2);
    let options = SessionOptions { sources: 3, ..options(3) };
    Session::new(vec![FileWork { sources, ..work(blocks * BLOCK) }], options, ms(0))
}

#[test]
fn three_sources_with_a_third_of_the_rate_each_reach_their_sum() {
    for ms_per_block in [[30, 30, 30], [90, 45, 15]] {
        let (mut session, _) = of_three(900);
        // What each source is about to send: when the next block of it is here.
        let mut queues = vec![std::collections::VecDeque::new(); 3];
        let (mut now, mut actions) = ([0_u64; 3], Vec::new());
        for stream in 0..3 {
            actions.extend(session.handle(ms(0), Event::Opened { stream }));
        }
        let ended = loop {
            for (stream, _, spans) in asked(&actions) {
                queues[stream as usize].extend(spans.iter().flat_map(|span| span.start..span.end));
            }
            if let Some(Action::Finish { .. }) = actions.first() {
                break *now.iter().max().unwrap();
            }
            let busy = (0..3).filter(|stream| !queues[*stream].is_empty());
            let stream = busy.min_by_key(|stream| now[*stream] + ms_per_block[*stream]).unwrap();
            now[stream] += ms_per_block[stream];
            let block = queues[stream].pop_front().unwrap();
            let event = Event::Arrived { stream: stream as StreamId, file: 0, block };
            actions = session.handle(ms(now[stream]), event);
        };
        let blocks_per_ms: f64 = ms_per_block.iter().map(|ms| 1.0 / *ms as f64).sum();
        let share = 900.0 / blocks_per_ms / ended as f64;
        assert!(share >= 0.95, "{ms_per_block:?}: {share}");
    }
}

#[test]
fn a_source_that_does_not_have_a_file_any_more_is_done_without() {
    let (mut session, _) = of_three(30);
    let mut asks = Vec::new();
    for stream in 0..3 {
        asks.extend(asked(&session.handle(ms(0), Event::Opened { stream })));
    }
    let mut again = asked(&session.handle(ms(1), Event::Unavailable { file: 0, source: 1 }));
    let was_asked = |stream: StreamId| asks.iter().filter(move |ask| ask.0 == stream).flat_map(|ask| ask.2.clone());
    assert!(again.is_empty() && was_asked(1).next().is_some());
    // What the others had comes, and they are asked for the rest, which the second source had been asked for.
    let mut left: Vec<_> =
        [0, 2].into_iter().flat_map(|stream| was_asked(stream).map(move |span| (stream, span))).collect();
    let mut finished = false;
    while let Some((stream, span)) = left.pop() {
        for block in span.start..span.end {
            let actions = session.handle(ms(2), Event::Arrived { stream, file: 0, block });
            finished |= actions.contains(&Action::Finish { file: 0, sources: Sources::only(0).and(2) });
            again = asked(&actions);
            left.extend(again.iter().flat_map(|(stream, _, spans)| spans.iter().map(|span| (*stream, *span))));
        }
    }
    assert!(finished);
    // Whoever finds blocks to be others is the only source from then on; without it there is none.
    let actions = session.handle(ms(3), Event::Disproved { file: 0, blocks: RangeSet::of(4, 6), source: 2 });
    assert!(asked(&actions).iter().all(|ask| ask.0 == 2) && !asked(&actions).is_empty(), "{actions:?}");
    let actions = session.handle(ms(4), Event::Unavailable { file: 0, source: 2 });
    assert!(asked(&actions).iter().all(|ask| ask.0 == 0) && !asked(&actions).is_empty(), "{actions:?}");
    let actions = session.handle(ms(5), Event::Unavailable { file: 0, source: 0 });
    assert_eq!(actions, [Action::Refuse { file: 0 }, Action::Done]);
}

#[test]
fn streams_of_a_source_that_is_gone_go_to_another() {
    let (mut session, actions) = of_three(30);
    let sources: Vec<_> = actions
        .iter()
        .map(|action| match action {
            Action::Open { stream, source } => (*stream, *source),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(sources, [(0, 0), (1, 1), (2, 2)]);
    let (mut now, mut opened) = (ms(0), Vec::new());
    for _ in 0..2 {
        session.handle(now, Event::Lost { stream: 1 });
        now = session.wake_at().unwrap();
        opened = session.handle(now, Event::Tick);
    }
    assert_eq!(opened, [Action::Open { stream: 1, source: 2 }]);
}

#[test]
fn connections_that_are_wanted_are_made_and_others_are_asked_for_nothing() {
    let (mut session, _) = Session::new(vec![work(1000 * BLOCK)], options(1), ms(0));
    assert_eq!(asked(&session.handle(ms(1), Event::Opened { stream: 0 })).len(), 2);
    let opened = session.handle(ms(2), Event::Streams { wanted: 3 });
    assert_eq!(opened, [1, 2].map(|stream| Action::Open { stream, source: 0 }));
    let asks = asked(&session.handle(ms(3), Event::Opened { stream: 2 }));
    assert!(asks.len() == 2 && asks.iter().all(|ask| ask.0 == 2));
    let span = asks[0].2[0];
    for (at, block) in [4, 20, 20, 60].into_iter().zip(span.start..) {
        session.handle(ms(at), Event::Arrived { stream: 2, file: 0, block });
    }
    assert_eq!(session.handle(ms(61), Event::Streams { wanted: 2 }), []);
    // What it was asked for still counts, and nothing more is asked.
    assert_eq!(asked(&session.handle(ms(62), Event::Arrived { stream: 2, file: 0, block: span.start + 4 })).len(), 0);
    session.handle(ms(63), Event::Ended { stream: 2, request: asks[0].1 });
    assert_eq!(asked(&session.handle(ms(64), Event::Ended { stream: 2, request: asks[1].1 })).len(), 0);
    // They are there when they are wanted again.
    let again = session.handle(ms(65), Event::Streams { wanted: 3 });
    let again: Vec<_> = asked(&again).iter().map(|ask| ask.0).collect();
    assert!(!again.is_empty() && again.iter().all(|stream| *stream == 2));
}

#[test]
fn connections_that_are_too_many_and_slow_are_closed_and_their_work_goes_to_others() {
    let (mut session, _) = Session::new(vec![work(64 * BLOCK)], options(2), ms(0));
    for stream in 0..2 {
        assert!(!asked(&session.handle(ms(1), Event::Opened { stream })).is_empty());
    }
    assert_eq!(session.handle(ms(1000), Event::Streams { wanted: 1 })[0], Action::Close { stream: 1 });
    // All is to be had of the other one.
    for block in 0..64 {
        assert!(!session.ended);
        session.handle(ms(1001 + 10 * block), Event::Arrived { stream: 0, file: 0, block });
        assert!(block == 63 || !session.streams[0].requests.is_empty());
        assert!(session.streams[1].requests.is_empty());
    }
    assert_eq!(session.files[0].state, FileState::Finishing);
}

#[test]
fn a_closed_connection_is_made_again_when_it_is_wanted() {
    let (mut session, _) = Session::new(vec![work(64 * BLOCK)], options(2), ms(0));
    session.handle(ms(1), Event::Opened { stream: 1 });
    session.handle(ms(1000), Event::Streams { wanted: 1 });
    assert_eq!(session.handle(ms(1001), Event::Streams { wanted: 1 }), []);
    let again = session.handle(ms(1002), Event::Streams { wanted: 2 });
    assert_eq!(again, [Action::Open { stream: 1, source: 0 }]);
}

#[test]
fn files_are_asked_for_when_their_last_block_is() {
    let (mut session, _) = Session::new(vec![work(3 * BLOCK), work(BLOCK)], options(1), ms(0));
    assert_eq!((session.asked_for(0), session.asked_for(2)), (None, None));
    let asks = asked(&session.handle(ms(1), Event::Opened { stream: 0 }));
    let blocks: u64 = asks.iter().flat_map(|ask| &ask.2).filter(|span| span.file == 0).map(|s| s.end - s.start).sum();
    assert!(blocks < 3, "the first requests of a small copy are small");
    assert_eq!(session.asked_for(0), None);
    // Once all are here there is nothing to wait for; a file of one block needs no proof.
    for (block, all_are_asked_for) in [(0, true), (1, true), (2, false)] {
        session.handle(ms(2), Event::Arrived { stream: 0, file: 0, block });
        assert_eq!((session.asked_for(0).is_some(), session.asked_for(1)), (all_are_asked_for, None), "{block}");
    }
}
