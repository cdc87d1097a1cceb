use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn block(ordinal: u32) -> BlockId {
    BlockId { lane: 0, ordinal }
}

/// A ledger and a clock that stands still unless it is moved.
struct Run {
    ledger: Ledger,
    now: Duration,
}

impl Run {
    /// Nodes that each want a block, and blocks that are fed.
    fn new(nodes: u32, blocks: u32) -> Self {
        let mut run = Self { ledger: Ledger::new(LedgerOptions::default()), now: Duration::ZERO };
        for node in 0..nodes {
            run.tell(Event::Joined { node: NodeId(node), writers: 1 });
        }
        (0..blocks).for_each(|ordinal| drop(run.tell(Event::Fed(block(ordinal)))));
        run.tell(Event::FeedEnded);
        run
    }

    fn tell(&mut self, event: Event) -> Vec<Action> {
        self.ledger.on(event, self.now)
    }

    fn wants(&mut self, node: u32) -> Vec<Action> {
        self.tell(Event::Wants(NodeId(node)))
    }

    /// The node aligns a block and all that follows from it is fetched.
    fn align(&mut self, node: u32, ordinal: u32) -> Vec<Action> {
        let mut left = self.tell(Event::Aligned(NodeId(node), block(ordinal)));
        let mut others = Vec::new();
        while let Some(action) = left.pop() {
            match action {
                Action::Fetch { node, block, .. } => left.extend(self.tell(Event::Fetched(node, block))),
                other => others.push(other),
            }
        }
        others
    }
}

#[test]
fn before_the_genome_is_cut_everybody_has_one_block() {
    let mut run = Run::new(2, 5);
    assert_eq!(run.wants(0), [Action::Align(NodeId(0), block(0))]);
    assert_eq!(run.wants(1), [Action::Align(NodeId(1), block(1))]);
    assert_eq!(run.wants(1), []);
    // The first block goes to whoever is there when the node that had it is gone: nobody could go on without it.
    assert_eq!(run.tell(Event::Lost(NodeId(0))), [Action::Align(NodeId(1), block(0))]);
    run.tell(Event::Planned { shares: 4 });
    assert_eq!(run.wants(1), [Action::Align(NodeId(1), block(2))]);
    assert_eq!(run.wants(1), [], "three blocks at most");
}

#[test]
fn owners_fetch_their_slices_and_others_keep_a_second_copy() {
    let mut run = Run::new(2, 1);
    run.wants(0);
    run.tell(Event::Planned { shares: 4 });
    assert_eq!(run.ledger.owners(), [Some(NodeId(0)), Some(NodeId(0)), Some(NodeId(1)), Some(NodeId(1))]);
    let shares = (0..4).map(Share).collect();
    let all = Action::Fetch { node: NodeId(1), block: block(0), shares, from: NodeId(0) };
    assert_eq!(run.tell(Event::Aligned(NodeId(0), block(0))), [all]);
    assert_eq!(run.tell(Event::Fetched(NodeId(1), block(0))), [Action::Release(block(0)), Action::Decide]);
}

#[test]
fn one_node_alone_needs_no_copies() {
    let mut run = Run::new(1, 1);
    run.wants(0);
    run.tell(Event::Planned { shares: 4 });
    assert_eq!(run.tell(Event::Aligned(NodeId(0), block(0))), [Action::Release(block(0)), Action::Decide]);
}

#[test]
fn what_a_lost_node_says_later_does_not_count() {
    let mut run = Run::new(2, 2);
    run.wants(0);
    run.wants(1);
    run.tell(Event::Planned { shares: 2 });
    run.tell(Event::Lost(NodeId(1)));
    assert_eq!(run.tell(Event::Aligned(NodeId(1), block(1))), []);
    assert_eq!(run.ledger.aligned_blocks(), 0);
    // It comes back as somebody else.
    run.tell(Event::Joined { node: NodeId(2), writers: 1 });
    assert_eq!(run.wants(2), [Action::Align(NodeId(2), block(1))]);
}

#[test]
fn a_block_that_takes_too_long_is_given_to_an_idle_node_too() {
    let mut run = Run::new(2, 2);
    run.wants(0);
    run.wants(1);
    run.tell(Event::Planned { shares: 2 });
    run.now += SECOND;
    run.align(0, 0);
    assert_eq!(run.wants(0), [], "it may still come");
    run.now += 3 * SECOND;
    assert_eq!(run.ledger.tick(run.now), [Action::Align(NodeId(0), block(1))]);
    assert!(run.align(0, 1).contains(&Action::Decide));
    // The first one's answer is not needed any more, and does no harm.
    assert!(!run.align(1, 1).contains(&Action::Decide));
}

#[test]
fn a_fetch_that_failed_is_tried_again_after_a_while() {
    let mut run = Run::new(2, 1);
    run.wants(0);
    run.tell(Event::Planned { shares: 2 });
    run.tell(Event::Aligned(NodeId(0), block(0)));
    assert_eq!(run.tell(Event::FetchFailed(NodeId(1), block(0))), []);
    let again = run.ledger.tick(LedgerOptions::default().retry_after);
    assert!(matches!(again[..], [Action::Fetch { node: NodeId(1), .. }]), "{again:?}");
}

#[test]
fn parts_are_placed_when_all_before_them_are_written() {
    let mut run = Run::new(2, 1);
    run.wants(0);
    run.tell(Event::Planned { shares: 2 });
    assert!(run.align(0, 0).contains(&Action::Decide));
    let (first, second) = (NodeId(0), NodeId(1));
    let given = run.tell(Event::Decided(vec![Share(0), Share(0), Share(1)]));
    assert_eq!(given, [Action::Write(first, 0), Action::Write(second, 2)], "one at a time");
    assert_eq!(run.tell(Event::Written(second, 2, [30, 3])), [], "nobody knows yet where it starts");
    let given = run.tell(Event::Written(first, 0, [10, 5]));
    assert_eq!(given, [Action::Write(first, 1), Action::Place(first, 0, [0, 0])]);
    let given = run.tell(Event::Written(first, 1, [20, 2]));
    assert_eq!(given, [Action::Place(first, 1, [10, 5]), Action::Place(second, 2, [30, 7])]);
    // Its owner is lost before the part is in the file: another one writes it, and gets to the same place.
    let given = run.tell(Event::Lost(second));
    assert_eq!(given, [Action::Write(first, 2)]);
    run.tell(Event::Placed(first, 0));
    run.tell(Event::Placed(first, 1));
    assert_eq!(run.tell(Event::Written(first, 2, [30, 3])), [Action::Place(first, 2, [30, 7])]);
    assert_eq!(run.tell(Event::Placed(first, 2)), [Action::Finish]);
}

#[test]
fn a_part_of_another_size_is_told() {
    let mut run = Run::new(1, 1);
    run.wants(0);
    run.tell(Event::Planned { shares: 1 });
    run.align(0, 0);
    run.tell(Event::Decided(vec![Share(0)]));
    run.tell(Event::Written(NodeId(0), 0, [10, 0]));
    run.tell(Event::Joined { node: NodeId(1), writers: 1 });
    run.tell(Event::Lost(NodeId(0)));
    // Nobody has the slice any more.
    assert_eq!(run.wants(1), []);
    assert_eq!(run.tell(Event::Fed(block(0))), [Action::Align(NodeId(1), block(0))]);
    assert_eq!(run.tell(Event::Aligned(NodeId(1), block(0))), [Action::Release(block(0)), Action::Write(NodeId(1), 0)]);
    let told = run.tell(Event::Written(NodeId(1), 0, [11, 0]));
    assert!(told.contains(&Action::Differs(0)), "{told:?}");
}

#[test]
fn parts_can_be_written_again_also_by_those_who_lacked_their_slices() {
    let mut run = Run::new(2, 1);
    run.wants(0);
    run.tell(Event::Planned { shares: 2 });
    assert!(run.align(0, 0).contains(&Action::Decide));
    let write = |run: &mut Run, node: u32, part: usize| {
        run.tell(Event::Written(NodeId(node), part, [0, 0]));
        run.tell(Event::Placed(NodeId(node), part))
    };
    run.tell(Event::Decided(vec![Share(0), Share(1)]));
    write(&mut run, 0, 0);
    assert_eq!(write(&mut run, 1, 1), [Action::Finish]);
    // While nothing is to be written nobody fetches what the lost node owned.
    run.tell(Event::Joined { node: NodeId(2), writers: 1 });
    assert_eq!(run.tell(Event::Lost(NodeId(0))), []);
    let given = run.tell(Event::Decided(vec![Share(0), Share(1)]));
    let fetch = Action::Fetch { node: NodeId(2), block: block(0), shares: vec![Share(0)], from: NodeId(1) };
    assert_eq!(given, [fetch, Action::Write(NodeId(1), 1)]);
    assert_eq!(run.tell(Event::Fetched(NodeId(2), block(0))), [Action::Write(NodeId(2), 0)]);
    write(&mut run, 2, 0);
    assert_eq!(write(&mut run, 1, 1), [Action::Finish]);
}

#[test]
fn no_input_is_a_run_too() {
    let mut run = Run::new(1, 0);
    assert_eq!(run.ledger.tick(SECOND), [], "it was told when the feed ended");
    assert_eq!(run.tell(Event::Decided(Vec::new())), [Action::Finish]);
}

fn shares(count: u16) -> Vec<Share> {
    (0..count).map(Share).collect()
}

/// A new head: nodes came with slices before the genome is cut, which was so long ago.
fn gone_on(held: &[(u32, u32, Vec<Share>)]) -> (Run, Vec<Action>) {
    let mut run = Run { ledger: Ledger::new(LedgerOptions::default()), now: Duration::ZERO };
    for node in 0..2 {
        run.tell(Event::Joined { node: NodeId(node), writers: 1 });
    }
    for (node, ordinal, shares) in held {
        run.tell(Event::Held(NodeId(*node), block(*ordinal), shares.clone()));
    }
    let actions = run.tell(Event::Planned { shares: 4 });
    (run, actions)
}

#[test]
fn what_two_nodes_kept_is_neither_aligned_nor_fetched_again() {
    let (mut run, actions) = gone_on(&[(0, 0, shares(4)), (1, 0, shares(4)), (0, 1, shares(4)), (1, 1, shares(4))]);
    assert_eq!(actions, []);
    assert!(run.ledger.has_aligned(block(0)) && run.ledger.has_aligned(block(1)));
    assert_eq!(run.tell(Event::FeedEnded), [Action::Decide]);
}

#[test]
fn shares_go_to_the_nodes_that_hold_the_most_of_them() {
    // Node 1 had the first two shares and aligned nothing, node 0 aligned both blocks.
    let own = vec![Share(0), Share(1)];
    let (run, actions) = gone_on(&[(0, 0, shares(4)), (0, 1, shares(4)), (1, 0, own.clone()), (1, 1, own)]);
    let (zero, one) = (Some(NodeId(0)), Some(NodeId(1)));
    assert_eq!(run.ledger.owners(), [zero, zero, one, one], "ties go to the first, which has its part then");
    // Second copies of the last two shares, which are the owner's.
    let fetches = actions.iter().filter(|action| matches!(action, Action::Fetch { node: NodeId(1), .. })).count();
    assert_eq!(fetches, 2, "{actions:?}");
}

#[test]
fn a_block_that_is_kept_in_part_is_aligned_when_it_is_fed_and_one_that_turns_up_late_is_not() {
    let (mut run, _) = gone_on(&[(0, 0, vec![Share(0), Share(1)])]);
    assert!(!run.ledger.has_aligned(block(0)));
    run.wants(0);
    assert_eq!(run.tell(Event::Fed(block(0))), [Action::Align(NodeId(0), block(0))]);
    run.tell(Event::Fed(block(1)));
    assert_eq!(run.ledger.waiting_blocks(), 1);
    run.tell(Event::Joined { node: NodeId(7), writers: 1 });
    run.tell(Event::Held(NodeId(7), block(1), shares(4)));
    assert_eq!(run.ledger.waiting_blocks(), 0);
    assert!(run.ledger.has_aligned(block(1)));
}

#[test]
fn reads_of_a_kept_block_are_asked_for_when_its_last_holder_is_gone() {
    let (mut run, _) = gone_on(&[(0, 0, shares(4))]);
    run.tell(Event::FeedEnded);
    let actions = run.tell(Event::Lost(NodeId(0)));
    assert!(actions.contains(&Action::Refeed(block(0))), "{actions:?}");
}
