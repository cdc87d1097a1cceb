use super::*;
use crate::blake3_tree::BLOCK_BYTES;

const BLOCK: u64 = BLOCK_BYTES;

fn finish() -> SessionAction {
    SessionAction::VerifyFile { file: 0, sources: SourceSet::only(0) }
}

fn work(size_bytes: u64) -> FileWork {
    FileWork { size_bytes, missing: RangeSet::from_range(0, block_count(size_bytes)), sources: SourceSet::only(0) }
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn requests_in(actions: &[SessionAction]) -> Vec<(StreamId, RequestId, Vec<BlockRange>)> {
    let asks = actions.iter().filter_map(|action| match action {
        SessionAction::RequestBlocks { stream, request, ranges, .. } => Some((*stream, *request, ranges.clone())),
        _ => None,
    });
    asks.collect()
}

/// Returns, for each stream, a range of `each` prefetched blocks of file 0.
fn prefetched(each: u64, streams: u64) -> Vec<Vec<BlockRange>> {
    (0..streams).map(|stream| vec![BlockRange { file: 0, start: stream * each, end: (stream + 1) * each }]).collect()
}

fn options(streams: u32) -> SessionOptions {
    SessionOptions { streams, ..SessionOptions::default() }
}

#[test]
fn a_transfer_of_nothing_is_done_at_once() {
    assert_eq!(TransferSession::new(Vec::new(), options(4), ms(0)).1, [SessionAction::Done]);
    let there = FileWork { size_bytes: 5, missing: RangeSet::default(), sources: SourceSet::only(0) };
    assert_eq!(TransferSession::new(vec![there], options(4), ms(0)).1, [SessionAction::Done]);
}

#[test]
fn a_complete_file_is_verified_without_a_connection() {
    let there = FileWork { size_bytes: 3 * BLOCK, missing: RangeSet::default(), sources: SourceSet::only(0) };
    let (mut session, actions) = TransferSession::new(vec![there], options(4), ms(0));
    assert_eq!(actions, [finish()]);
    assert_eq!(session.handle_event(ms(1), SessionEvent::FileFinished { file: 0 }), [SessionAction::Done]);
}

#[test]
fn blocks_are_requested_once_and_those_of_a_lost_stream_are_requested_from_another() {
    let (mut session, actions) = TransferSession::new(vec![work(40 * BLOCK)], options(2), ms(0));
    assert_eq!(actions.len(), 2);
    let mut asks = requests_in(&session.handle_event(ms(1), SessionEvent::StreamOpened { stream: 0 }));
    asks.extend(requests_in(&session.handle_event(ms(1), SessionEvent::StreamOpened { stream: 1 })));
    let mut seen = RangeSet::default();
    for span in asks.iter().flat_map(|ask| &ask.2) {
        for block in span.start..span.end {
            assert!(!seen.contains(block));
            seen.insert(block, block + 1);
        }
    }
    let first = asks.iter().find(|ask| ask.0 == 0).unwrap().2[0];
    session.handle_event(ms(2), SessionEvent::BlockWritten { stream: 0, file: 0, block: first.start });
    session.handle_event(ms(3), SessionEvent::StreamLost { stream: 0 });
    // Only the missing blocks are requested again; the other stream requests them.
    let mut again = RangeSet::default();
    let mut time = 4;
    let mut open: Vec<BlockRange> = asks.iter().filter(|ask| ask.0 == 1).flat_map(|ask| ask.2.clone()).collect();
    while let Some(span) = open.pop() {
        for block in span.start..span.end {
            time += 1;
            for (stream, _, spans) in
                requests_in(&session.handle_event(ms(time), SessionEvent::BlockWritten { stream: 1, file: 0, block }))
            {
                assert_eq!(stream, 1);
                for span in &spans {
                    again.insert(span.start, span.end);
                }
                open.extend(spans);
            }
        }
    }
    assert!(!again.contains(first.start) && again.contains(first.start + 1));
    assert_eq!(session.handle_event(ms(time), SessionEvent::FileFinished { file: 0 }), [SessionAction::Done]);
}

#[test]
fn prefetched_blocks_are_the_first_request_of_their_stream_and_of_no_other() {
    let options = SessionOptions { prefetched: prefetched(3, 2), ..options(2) };
    let (mut session, _) = TransferSession::new(vec![work(40 * BLOCK)], options, ms(0));
    let second = session.handle_event(ms(1), SessionEvent::StreamOpened { stream: 1 });
    let (stream, _, spans) = requests_in(&second)[0].clone();
    assert_eq!((stream, &spans[..]), (1, &[BlockRange { file: 0, start: 3, end: 6 }][..]));
    let is_ahead = |actions: &[SessionAction]| {
        let asks = actions.iter().filter_map(|action| match action {
            SessionAction::RequestBlocks { is_prefetched, .. } => Some(*is_prefetched),
            _ => None,
        });
        asks.collect::<Vec<_>>()
    };
    assert_eq!(is_ahead(&second), [true, false]);
    // Blocks that the lost stream had prefetched are requested over another stream only after the loss.
    assert!(requests_in(&second)[1].2.iter().all(|span| span.start >= 6));
    let lost = session.handle_event(ms(2), SessionEvent::StreamLost { stream: 0 });
    assert_eq!(requests_in(&lost), []);
    let mut next = Vec::new();
    for block in 3..6 {
        next.extend(session.handle_event(ms(3), SessionEvent::BlockWritten { stream: 1, file: 0, block }));
    }
    assert!(is_ahead(&next).iter().all(|ahead| !ahead), "{next:?}");
    assert_eq!(requests_in(&next)[0].2[0].start, 0);
    let again = session.handle_event(ms(200), SessionEvent::Tick);
    assert_eq!(again, [SessionAction::OpenStream { stream: 0, source: 0 }]);
    assert!(!is_ahead(&session.handle_event(ms(201), SessionEvent::StreamOpened { stream: 0 }))[0]);
}

#[test]
fn a_file_whose_blocks_are_all_prefetched_is_finished_by_their_arrival() {
    let options = SessionOptions { prefetched: prefetched(1, 2), ..options(4) };
    let (mut session, _) = TransferSession::new(vec![work(2 * BLOCK)], options, ms(0));
    for stream in 0..4 {
        let asks = requests_in(&session.handle_event(ms(1), SessionEvent::StreamOpened { stream }));
        assert_eq!(asks.len(), usize::from(stream < 2));
    }
    assert_eq!(session.handle_event(ms(2), SessionEvent::BlockWritten { stream: 0, file: 0, block: 0 }), []);
    assert_eq!(session.handle_event(ms(2), SessionEvent::BlockWritten { stream: 1, file: 0, block: 1 }), [finish()]);
}

#[test]
fn a_damaged_block_is_requested_alone_and_not_for_ever() {
    let (mut session, _) = TransferSession::new(vec![work(2 * BLOCK)], options(1), ms(0));
    session.handle_event(ms(1), SessionEvent::StreamOpened { stream: 0 });
    session.handle_event(ms(2), SessionEvent::BlockWritten { stream: 0, file: 0, block: 0 });
    for time in 1..MAX_DAMAGED_RECEIPTS {
        let actions =
            session.handle_event(ms(u64::from(time)), SessionEvent::BlockDamaged { stream: 0, file: 0, block: 1 });
        assert_eq!(requests_in(&actions)[0].2, [BlockRange { file: 0, start: 1, end: 2 }]);
    }
    let actions = session.handle_event(ms(9), SessionEvent::BlockDamaged { stream: 0, file: 0, block: 1 });
    assert_eq!(actions, [SessionAction::FailFile { file: 0 }, SessionAction::Done]);
}

#[test]
fn a_restored_path_is_used_within_a_second_and_silence_times_out() {
    let (mut session, _) = TransferSession::new(vec![work(BLOCK)], options(1), ms(0));
    let mut now = ms(0);
    for _ in 0..20 {
        session.handle_event(now, SessionEvent::StreamLost { stream: 0 });
        let next = session.next_wakeup().unwrap();
        assert!(next <= now + MAX_RECONNECT_DELAY);
        now = next;
        assert_eq!(session.handle_event(now, SessionEvent::Tick), [SessionAction::OpenStream { stream: 0, source: 0 }]);
    }
    let end = SessionOptions::default().idle_timeout;
    assert!(session.handle_event(end, SessionEvent::Tick).contains(&SessionAction::FailWithTimeout));
    assert_eq!(session.next_wakeup(), None);
}

#[test]
fn a_stalled_request_is_duplicated_on_an_idle_stream_and_finishes_once() {
    let (mut session, _) = TransferSession::new(vec![work(BLOCK)], options(2), ms(0));
    assert_eq!(requests_in(&session.handle_event(ms(0), SessionEvent::StreamOpened { stream: 0 })).len(), 1);
    assert!(requests_in(&session.handle_event(ms(0), SessionEvent::StreamOpened { stream: 1 })).is_empty());
    let (mut wake, mut doubled) = (ms(0), Vec::new());
    while doubled.is_empty() && wake < ms(10_000) {
        wake = session.next_wakeup().unwrap();
        doubled = requests_in(&session.handle_event(wake, SessionEvent::Tick));
    }
    assert_eq!((doubled.len(), doubled[0].0), (1, 1));
    assert!(wake >= STALL_TIMEOUT);
    assert_eq!(
        session.handle_event(wake, SessionEvent::BlockWritten { stream: 1, file: 0, block: 0 }),
        [SessionAction::Done]
    );
}

#[test]
fn calls_go_over_the_stream_that_is_idle_soonest() {
    let (mut session, _) = TransferSession::new(vec![work(400 * BLOCK)], options(3), ms(0));
    assert_eq!(session.soonest_idle_stream(ms(0), 0), None);
    for stream in 0..2 {
        session.handle_event(ms(0), SessionEvent::StreamOpened { stream });
    }
    let bring = |session: &mut TransferSession, stream: StreamId, at: u64| {
        let outstanding = &session.streams[stream as usize].requests.values().next().unwrap().outstanding;
        let block = outstanding[&0].iter().next().unwrap().0;
        session.handle_event(ms(at), SessionEvent::BlockWritten { stream, file: 0, block });
    };
    for at in 1..100 {
        bring(&mut session, 1, 10 * at);
        if at % 30 == 0 {
            bring(&mut session, 0, 10 * at);
        }
    }
    assert_eq!((session.soonest_idle_stream(ms(1000), 0), session.soonest_idle_stream(ms(1000), 1)), (Some(1), None));
}

#[test]
fn a_slow_stream_is_not_waited_for_at_the_end() {
    let (mut session, _) = TransferSession::new(vec![work(400 * BLOCK)], options(2), ms(0));
    let mut waiting: Vec<Vec<(RequestId, BlockRange)>> = vec![Vec::new(); 2];
    let take = |actions: &[SessionAction], waiting: &mut Vec<Vec<(RequestId, BlockRange)>>| {
        for (stream, request, spans) in requests_in(actions) {
            waiting[stream as usize].extend(spans.into_iter().map(|span| (request, span)));
        }
        actions.iter().any(|action| *action == finish())
    };
    for stream in 0..2 {
        take(&session.handle_event(ms(0), SessionEvent::StreamOpened { stream }), &mut waiting);
    }
    // The first stream receives a block every millisecond. The second one receives a block every 10 ms, and from 500 ms
    // on every 400 ms.
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
            let mut done =
                take(&session.handle_event(ms(at), SessionEvent::BlockWritten { stream, file, block }), &mut waiting);
            if is_over && !waiting[stream as usize].iter().any(|(other, _)| *other == request) {
                done |=
                    take(&session.handle_event(ms(at), SessionEvent::RequestEnded { stream, request }), &mut waiting);
            }
            if done {
                ended.get_or_insert(at);
            }
        }
        if ended.is_some() {
            break;
        }
        take(&session.handle_event(ms(at), SessionEvent::Tick), &mut waiting);
    }
    // The second stream alone would need seconds for its requests.
    assert!(ended.is_some_and(|at| at < 1500), "{ended:?}");
}

#[test]
fn small_files_go_many_to_a_request() {
    let files = (0..1000).map(|_| work(10_000)).collect();
    let (mut session, _) = TransferSession::new(files, options(1), ms(0));
    let asks = requests_in(&session.handle_event(ms(0), SessionEvent::StreamOpened { stream: 0 }));
    assert!(asks[0].2.len() > 50, "{asks:?}");
}

#[test]
fn a_file_that_is_gone_does_not_keep_the_others() {
    let (mut session, _) = TransferSession::new(vec![work(BLOCK), work(BLOCK)], options(1), ms(0));
    session.handle_event(ms(0), SessionEvent::StreamOpened { stream: 0 });
    assert!(
        !session
            .handle_event(ms(0), SessionEvent::FileUnavailable { file: 0, source: 0 })
            .contains(&SessionAction::Done)
    );
    assert_eq!(
        session.handle_event(ms(0), SessionEvent::BlockWritten { stream: 0, file: 1, block: 0 }),
        [SessionAction::Done]
    );
}

#[test]
fn blocks_that_fail_verification_are_fetched_again() {
    let there = FileWork { size_bytes: 4 * BLOCK, missing: RangeSet::from_range(0, 1), sources: SourceSet::only(0) };
    let (mut session, _) = TransferSession::new(vec![there], options(1), ms(0));
    session.handle_event(ms(0), SessionEvent::StreamOpened { stream: 0 });
    let actions = session.handle_event(ms(1), SessionEvent::BlockWritten { stream: 0, file: 0, block: 0 });
    assert_eq!(actions, [finish()]);
    let actions = session.handle_event(
        ms(2),
        SessionEvent::VerificationFailed { file: 0, blocks: RangeSet::from_range(2, 3), source: 0 },
    );
    assert_eq!(requests_in(&actions)[0].2, [BlockRange { file: 0, start: 2, end: 3 }]);
    session.handle_event(ms(3), SessionEvent::BlockWritten { stream: 0, file: 0, block: 2 });
    assert_eq!(session.handle_event(ms(4), SessionEvent::FileFinished { file: 0 }), [SessionAction::Done]);
}

#[test]
fn outstanding_blocks_are_accepted_after_a_write_failure_and_nothing_more_is_requested() {
    let (mut session, _) = TransferSession::new(vec![work(40 * BLOCK)], options(2), ms(0));
    let mut asks = requests_in(&session.handle_event(ms(1), SessionEvent::StreamOpened { stream: 0 }));
    asks.extend(requests_in(&session.handle_event(ms(1), SessionEvent::StreamOpened { stream: 1 })));
    let (stream, request, _) = asks.pop().unwrap();
    assert_eq!(session.handle_event(ms(2), SessionEvent::WriteFailed { stream, request: Some(request) }), []);
    let last = asks.last().unwrap().1;
    for (stream, request, spans) in asks {
        for block in spans.iter().flat_map(|span| span.start..span.end) {
            let actions = session.handle_event(ms(3), SessionEvent::BlockWritten { stream, file: 0, block });
            let is_last = request == last && block + 1 == spans[0].end;
            assert_eq!(actions, if is_last { vec![SessionAction::StopAfterWriteFailure] } else { Vec::new() });
        }
    }
    assert_eq!(session.next_wakeup(), None);
}

#[test]
fn a_full_disk_is_reported_even_if_outstanding_blocks_never_arrive() {
    let (mut session, _) = TransferSession::new(vec![work(40 * BLOCK)], options(2), ms(0));
    session.handle_event(ms(1), SessionEvent::StreamOpened { stream: 0 });
    session.handle_event(ms(1), SessionEvent::StreamOpened { stream: 1 });
    assert_eq!(session.handle_event(ms(2), SessionEvent::WriteFailed { stream: 0, request: None }), []);
    let wake = session.next_wakeup().unwrap();
    assert_eq!(
        (wake, session.handle_event(wake, SessionEvent::Tick)),
        (ms(2) + DRAIN_TIMEOUT, vec![SessionAction::StopAfterWriteFailure])
    );
}

/// Returns a session for a file of `blocks` blocks that three sources have; each source has one stream.
fn three_source_session(blocks: u64) -> (TransferSession, Vec<SessionAction>) {
    let sources = SourceSet::only(0).with_source(1).with_source(2);
    let options = SessionOptions { sources: 3, ..options(3) };
    TransferSession::new(vec![FileWork { sources, ..work(blocks * BLOCK) }], options, ms(0))
}

#[test]
fn three_sources_with_a_third_of_the_rate_each_reach_their_sum() {
    for ms_per_block in [[30, 30, 30], [90, 45, 15]] {
        let (mut session, _) = three_source_session(900);
        // `queues` has the blocks that each source still has to send, `now` the time at which its last block arrived.
        let mut queues = vec![std::collections::VecDeque::new(); 3];
        let (mut now, mut actions) = ([0_u64; 3], Vec::new());
        for stream in 0..3 {
            actions.extend(session.handle_event(ms(0), SessionEvent::StreamOpened { stream }));
        }
        let ended = loop {
            for (stream, _, spans) in requests_in(&actions) {
                queues[stream as usize].extend(spans.iter().flat_map(|span| span.start..span.end));
            }
            if let Some(SessionAction::VerifyFile { .. }) = actions.first() {
                break *now.iter().max().unwrap();
            }
            let busy = (0..3).filter(|stream| !queues[*stream].is_empty());
            let stream = busy.min_by_key(|stream| now[*stream] + ms_per_block[*stream]).unwrap();
            now[stream] += ms_per_block[stream];
            let block = queues[stream].pop_front().unwrap();
            let event = SessionEvent::BlockWritten { stream: stream as StreamId, file: 0, block };
            actions = session.handle_event(ms(now[stream]), event);
        };
        let blocks_per_ms: f64 = ms_per_block.iter().map(|ms| 1.0 / *ms as f64).sum();
        let share = 900.0 / blocks_per_ms / ended as f64;
        assert!(share >= 0.95, "{ms_per_block:?}: {share}");
    }
}

#[test]
fn a_source_that_lost_a_file_is_skipped() {
    let (mut session, _) = three_source_session(30);
    let mut asks = Vec::new();
    for stream in 0..3 {
        asks.extend(requests_in(&session.handle_event(ms(0), SessionEvent::StreamOpened { stream })));
    }
    let mut again = requests_in(&session.handle_event(ms(1), SessionEvent::FileUnavailable { file: 0, source: 1 }));
    let was_asked = |stream: StreamId| asks.iter().filter(move |ask| ask.0 == stream).flat_map(|ask| ask.2.clone());
    assert!(again.is_empty() && was_asked(1).next().is_some());
    // The outstanding blocks of the other sources arrive. These sources then also send the blocks that were requested
    // from source 1.
    let mut left: Vec<_> =
        [0, 2].into_iter().flat_map(|stream| was_asked(stream).map(move |span| (stream, span))).collect();
    let mut finished = false;
    while let Some((stream, span)) = left.pop() {
        for block in span.start..span.end {
            let actions = session.handle_event(ms(2), SessionEvent::BlockWritten { stream, file: 0, block });
            finished |=
                actions.contains(&SessionAction::VerifyFile { file: 0, sources: SourceSet::only(0).with_source(2) });
            again = requests_in(&actions);
            left.extend(again.iter().flat_map(|(stream, _, spans)| spans.iter().map(|span| (*stream, *span))));
        }
    }
    assert!(finished);
    // Source 2 finds blocks that differ, so only source 2 is used from then on. When it fails, source 0 is used.
    let actions = session.handle_event(
        ms(3),
        SessionEvent::VerificationFailed { file: 0, blocks: RangeSet::from_range(4, 6), source: 2 },
    );
    assert!(requests_in(&actions).iter().all(|ask| ask.0 == 2) && !requests_in(&actions).is_empty(), "{actions:?}");
    let actions = session.handle_event(ms(4), SessionEvent::FileUnavailable { file: 0, source: 2 });
    assert!(requests_in(&actions).iter().all(|ask| ask.0 == 0) && !requests_in(&actions).is_empty(), "{actions:?}");
    let actions = session.handle_event(ms(5), SessionEvent::FileUnavailable { file: 0, source: 0 });
    assert_eq!(actions, [SessionAction::FailFile { file: 0 }, SessionAction::Done]);
}

#[test]
fn streams_of_a_source_that_is_gone_go_to_another() {
    let (mut session, actions) = three_source_session(30);
    let sources: Vec<_> = actions
        .iter()
        .map(|action| match action {
            SessionAction::OpenStream { stream, source } => (*stream, *source),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(sources, [(0, 0), (1, 1), (2, 2)]);
    let (mut now, mut opened) = (ms(0), Vec::new());
    for _ in 0..2 {
        session.handle_event(now, SessionEvent::StreamLost { stream: 1 });
        now = session.next_wakeup().unwrap();
        opened = session.handle_event(now, SessionEvent::Tick);
    }
    assert_eq!(opened, [SessionAction::OpenStream { stream: 1, source: 2 }]);
}

#[test]
fn additional_connections_are_opened_and_surplus_ones_receive_no_requests() {
    let (mut session, _) = TransferSession::new(vec![work(1000 * BLOCK)], options(1), ms(0));
    assert_eq!(requests_in(&session.handle_event(ms(1), SessionEvent::StreamOpened { stream: 0 })).len(), 2);
    let opened = session.handle_event(ms(2), SessionEvent::StreamCountChanged { count: 3 });
    assert_eq!(opened, [1, 2].map(|stream| SessionAction::OpenStream { stream, source: 0 }));
    let asks = requests_in(&session.handle_event(ms(3), SessionEvent::StreamOpened { stream: 2 }));
    assert!(asks.len() == 2 && asks.iter().all(|ask| ask.0 == 2));
    let span = asks[0].2[0];
    for (at, block) in [4, 20, 20, 60].into_iter().zip(span.start..) {
        session.handle_event(ms(at), SessionEvent::BlockWritten { stream: 2, file: 0, block });
    }
    assert_eq!(session.handle_event(ms(61), SessionEvent::StreamCountChanged { count: 2 }), []);
    // The outstanding blocks of the excess stream are accepted, but it gets no new requests.
    assert_eq!(
        requests_in(
            &session.handle_event(ms(62), SessionEvent::BlockWritten { stream: 2, file: 0, block: span.start + 4 })
        )
        .len(),
        0
    );
    session.handle_event(ms(63), SessionEvent::RequestEnded { stream: 2, request: asks[0].1 });
    assert_eq!(
        requests_in(&session.handle_event(ms(64), SessionEvent::RequestEnded { stream: 2, request: asks[1].1 })).len(),
        0
    );
    // The excess streams are used again when the number increases.
    let again = session.handle_event(ms(65), SessionEvent::StreamCountChanged { count: 3 });
    let again: Vec<_> = requests_in(&again).iter().map(|ask| ask.0).collect();
    assert!(!again.is_empty() && again.iter().all(|stream| *stream == 2));
}

#[test]
fn connections_that_are_too_many_and_slow_are_closed_and_their_work_goes_to_others() {
    let (mut session, _) = TransferSession::new(vec![work(64 * BLOCK)], options(2), ms(0));
    for stream in 0..2 {
        assert!(!requests_in(&session.handle_event(ms(1), SessionEvent::StreamOpened { stream })).is_empty());
    }
    assert_eq!(
        session.handle_event(ms(1000), SessionEvent::StreamCountChanged { count: 1 })[0],
        SessionAction::CloseStream { stream: 1 }
    );
    // The other stream receives all blocks, including those of the closed stream.
    for block in 0..64 {
        assert!(!session.has_ended);
        session.handle_event(ms(1001 + 10 * block), SessionEvent::BlockWritten { stream: 0, file: 0, block });
        assert!(block == 63 || !session.streams[0].requests.is_empty());
        assert!(session.streams[1].requests.is_empty());
    }
    assert_eq!(session.files[0].state, FilePhase::Verifying);
}

#[test]
fn a_closed_connection_is_made_again_when_it_is_wanted() {
    let (mut session, _) = TransferSession::new(vec![work(64 * BLOCK)], options(2), ms(0));
    session.handle_event(ms(1), SessionEvent::StreamOpened { stream: 1 });
    session.handle_event(ms(1000), SessionEvent::StreamCountChanged { count: 1 });
    assert_eq!(session.handle_event(ms(1001), SessionEvent::StreamCountChanged { count: 1 }), []);
    let again = session.handle_event(ms(1002), SessionEvent::StreamCountChanged { count: 2 });
    assert_eq!(again, [SessionAction::OpenStream { stream: 1, source: 0 }]);
}

#[test]
fn a_file_is_fully_requested_when_its_last_block_is() {
    let (mut session, _) = TransferSession::new(vec![work(3 * BLOCK), work(BLOCK)], options(1), ms(0));
    assert_eq!((session.fully_requested_sources(0), session.fully_requested_sources(2)), (None, None));
    let asks = requests_in(&session.handle_event(ms(1), SessionEvent::StreamOpened { stream: 0 }));
    let blocks: u64 = asks.iter().flat_map(|ask| &ask.2).filter(|span| span.file == 0).map(|s| s.end - s.start).sum();
    assert!(blocks < 3, "the first requests of a small copy are small");
    assert_eq!(session.fully_requested_sources(0), None);
    // Once all blocks are written, there is nothing to wait for. File 1 has one block and needs no verification.
    for (block, all_are_asked_for) in [(0, true), (1, true), (2, false)] {
        session.handle_event(ms(2), SessionEvent::BlockWritten { stream: 0, file: 0, block });
        assert_eq!(
            (session.fully_requested_sources(0).is_some(), session.fully_requested_sources(1)),
            (all_are_asked_for, None),
            "{block}"
        );
    }
}
