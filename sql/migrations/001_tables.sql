-- The tables of workq.
--
-- A message is written once and never changed. What changes is tiny and lives in `delivery`:
-- one narrow row for each unfinished message and queue, deleted when it ends. How each attempt
-- ended goes to `attempt`, and what was given up on to `dead_letter`, with its own copy of the
-- message, so that old partitions of `message` can be dropped.
--
--   enqueue ──> message (partitioned by created_at, dropped whole)
--          └──> delivery ── receive ──> the same row, leased
--                  │                        │
--                  │             ack / fail / timeout ──> attempt (partitioned by finished_at)
--                  └── given up on ──> dead_letter ── redrive ──> delivery
--
-- Nobody but the owner has rights on the tables: the functions are the interface.

create schema workq;
comment on schema workq is 'workq: an SQS-like work queue inside PostgreSQL. The functions without a leading underscore are the interface.';

-- Message ids and lease numbers. Neither may be cached: a session's private block of numbers
-- would let a later lease be smaller than an earlier one, and an id not follow enqueue order.
create sequence workq.message_id;
create sequence workq.lease_number;

-- Where the last sweep stopped, and when the next is due after a long one (microseconds).
create sequence workq.sweep_message minvalue 0;
create sequence workq.sweep_due;

create table workq.queue (
  id                 int generated always as identity primary key,
  name               text not null unique,
  created_at         timestamptz not null default clock_timestamp(),

  visibility         interval not null default '30 seconds',
  visibility_factor  double precision not null default 1,
  max_visibility     interval not null default '12 hours',
  max_attempts       int default 5,
  retry_delays       interval[] not null default '{1 second,10 seconds,1 minute,10 minutes}',
  retry_jitter       double precision not null default 0.1,
  ttl                interval default '14 days',
  retention          interval not null default '7 days',
  dead_retention     interval not null default '90 days',
  dead_letter_queue  int references workq.queue (id),
  history            text not null default 'all',
  max_payload_bytes  int not null default 1048576,
  max_depth          bigint,
  notify             boolean not null default true,
  paused             boolean not null default false,

  -- State that changes often lives in sequences: never transactional, never a dead row.
  -- All but `depth` hold a time in microseconds since 1970. As regclass they survive a dump.
  floor              regclass not null,  -- receive need not look at rows visible before this
  next_glance        regclass not null,  -- when somebody looks a little below the floor again
  next_look          regclass not null,  -- when somebody looks from the very beginning again
  sleepers           regclass not null,  -- somebody sleeps until then: notify
  quiet              regclass not null,  -- a woken receiver looks again at this time: do not notify before
  next_due_look      regclass not null,  -- idle need not search for the next due time before this
  depth              regclass not null,  -- the last sample of the depth, and the second until which it serves

  constraint queue_name_form check (name ~ '^[a-z][a-z0-9_.-]{0,46}$'),
  constraint queue_not_its_own_dead_letter_queue check (dead_letter_queue <> id)
);
comment on table workq.queue is 'one row a queue: its settings, and the sequences that hold what changes often; never written by enqueue, receive or ack';

create table workq.message (
  id            bigint not null,
  created_at    timestamptz not null,
  queue_id      int not null,
  payload       jsonb,
  headers       jsonb,
  kind          text,
  content_type  text,
  body          bytea
) partition by range (created_at);
create index message_id_idx on workq.message (id);
comment on table workq.message is 'what was enqueued; never changes; partitions are dropped by maintain() when they are older than every retention and no delivery needs them';

create table workq.delivery (
  message_id    bigint not null,
  created_at    timestamptz not null,     -- of the message: names its partition
  visible_at    timestamptz not null,     -- receivable from then on: the delay, the backoff or the lease
  queue_id      int not null,
  attempt       int not null default 0,   -- receives so far
  lease         bigint,                   -- of the last receive; null: waiting
  received_at   timestamptz,              -- of the last receive
  expires_at    timestamptz,              -- ttl; null: never
  max_attempts  int,                      -- null: the queue's
  priority      smallint not null,
  worker        text,
  status        jsonb,                    -- the last report of the worker
  constraint delivery_pkey primary key (message_id, queue_id)
);
create index delivery_visible_idx on workq.delivery (queue_id, priority, visible_at);
comment on table workq.delivery is 'the unfinished place of a message in a queue: when it is visible, which attempt, which lease; deleted when it ends';

create table workq.attempt (
  message_id   bigint not null,
  finished_at  timestamptz not null,
  started_at   timestamptz,               -- null: it was never received
  lease        bigint,
  queue_id     int not null,
  attempt      int not null,
  outcome      text not null,
  reason       text,
  worker       text,
  error        text,
  details      jsonb,
  result       jsonb
) partition by range (finished_at);
create index attempt_message_idx on workq.attempt (message_id);
comment on table workq.attempt is 'the history: one row for each receive and how it ended (acked, retry, dead, released, timeout, cancelled, purged)';

create table workq.dead_letter (
  queue_id      int not null,
  message_id    bigint not null,
  died_at       timestamptz not null,
  reason        text not null,
  attempt       int not null,
  max_attempts  int,
  priority      smallint not null,
  error         text,
  details       jsonb,
  enqueued_at   timestamptz not null,
  kind          text,
  headers       jsonb,
  payload       jsonb,
  content_type  text,
  body          bytea,
  constraint dead_letter_pkey primary key (queue_id, message_id)
);
create index dead_letter_died_idx on workq.dead_letter (queue_id, died_at);
comment on table workq.dead_letter is 'deliveries that were given up on, each with its own copy of the message; leaves by redrive or after dead_retention';

-- The tails. maintain() closes them in time and makes new ones; should it never run, they take everything.
create table workq.message_tail partition of workq.message for values from (minvalue) to (maxvalue);
create table workq.attempt_tail partition of workq.attempt for values from (minvalue) to (maxvalue);

-- Results of the functions.

create type workq.receipt as (id bigint, duplicate boolean, visible_at timestamptz);

create type workq.received as (
  id bigint, lease bigint, attempt int, max_attempts int, lease_until timestamptz, enqueued_at timestamptz,
  priority int, group_key text, kind text, headers jsonb, payload jsonb, body bytea, content_type text);

create type workq.wakeup as (channel text, next_due timestamptz);

create type workq.settled as (ord int, id bigint, outcome text);

create type workq.queue_info as (
  queue text, created_at timestamptz, visibility interval, visibility_factor double precision, max_visibility interval,
  max_attempts int, retry_delays interval[], retry_jitter double precision, ttl interval, retention interval,
  dead_retention interval, dead_letter_queue text, history text, max_payload_bytes int, max_depth bigint,
  notify boolean, paused boolean);

create type workq.message_info as (
  id bigint, queue text, state text, attempt int, max_attempts int, lease bigint, visible_at timestamptz,
  received_at timestamptz, enqueued_at timestamptz, expires_at timestamptz, finished_at timestamptz, priority int,
  worker text, status jsonb, result jsonb, reason text, error text, kind text, headers jsonb, payload jsonb,
  body bytea, content_type text);

create type workq.attempt_info as (
  id bigint, attempt int, lease bigint, started_at timestamptz, finished_at timestamptz, outcome text, reason text,
  worker text, error text, details jsonb, result jsonb);

create type workq.dead_letter_info as (
  id bigint, died_at timestamptz, reason text, attempt int, max_attempts int, priority int, error text, details jsonb,
  enqueued_at timestamptz, kind text, headers jsonb, payload jsonb, body bytea, content_type text);

create type workq.queue_stats as (
  queue text, ready bigint, delayed bigint, leased bigint, retrying bigint, dead bigint, oldest_ready interval,
  enqueued_per_second double precision, acked_per_second double precision, failed_per_second double precision,
  paused boolean, estimated boolean);

create type workq.sweep_counts as (exhausted int, expired int, dead_removed int);

create type workq.maintenance as (action text, target text);

---- create above / drop below ----

drop schema workq cascade;
