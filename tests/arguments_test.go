package tests

import (
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// badArgument is one call that must fail: a good call of the function, with one argument replaced.
type badArgument struct {
	function string
	argument string
	value    string // an SQL expression; "" leaves the argument out
	states   []string
	params   []any             // for $1 in value
	with     map[string]string // other arguments that are not those of the good call
	foreign  bool              // PostgreSQL's own error, before workq is called
}

// argumentWorld is a database with a message in each state, and what a good call names.
type argumentWorld struct {
	db        *pgxpool.Pool
	goodCalls map[string]map[string]string // function, argument, SQL expression
	types     map[string]map[string]string // function, argument, type
}

func newArgumentWorld(t *testing.T) *argumentWorld {
	t.Helper()
	db := newDB(t)
	for _, sql := range []string{
		"select workq.create_queue('q')",
		"select workq.create_queue('sibling')",
		"select workq.create_queue('small', max_payload_bytes => 1000)",
		"select workq.create_queue('full', max_depth => 1)",
		"select workq.create_queue('parent', dead_letter_queue => 'sibling')",
		"select workq.enqueue('sibling', '{\"n\": 1}', kind => 'sibling')",
		"select workq.enqueue('q', kind => 'leased', priority => 0)",
		"select workq.receive('q', visibility => '1 hour', worker => 'w')",
		"select workq.enqueue('q', kind => 'dead', priority => 0)",
		"select workq.fail('q', id, lease, permanent => true) from workq.receive('q')",
		"select workq.enqueue('q', kind => 'ready')",
		"select workq.enqueue('q', kind => 'delayed', delay => '1 hour')",
	} {
		execSQL(t, db, sql)
	}
	var id, lease string
	err := db.QueryRow(t.Context(), "select id::text, lease::text from workq.peek('q', state => 'leased')").Scan(&id, &lease)
	require.NoError(t, err)

	w := &argumentWorld{db: db, goodCalls: map[string]map[string]string{}, types: argumentTypes(t, db)}
	one := map[string]string{"queue": "'q'", "id": id, "lease": lease}
	many := map[string]string{"queue": "'q'", "ids": "array[" + id + "]", "leases": "array[" + lease + "]"}
	for function, arguments := range w.types {
		good := map[string]string{}
		switch {
		case function == "create_queue":
			good["queue"] = "'new'"
		case arguments["ids"] != "" && arguments["leases"] != "":
			good = many
		case arguments["id"] != "" && arguments["lease"] != "":
			good = one
		case arguments["id"] != "":
			good["queue"], good["id"] = "'q'", id
		case arguments["queue"] != "":
			good["queue"] = "'q'"
		}
		if function == "report" {
			good = map[string]string{"queue": "'q'", "id": id, "lease": lease, "status": "'{}'"}
		}
		w.goodCalls[function] = good
	}
	return w
}

// argumentTypes are the public functions with the types of their arguments.
func argumentTypes(t *testing.T, db execer) map[string]map[string]string {
	t.Helper()
	rows, err := db.Query(t.Context(), `
		select p.proname::text, coalesce(a.name, ''), coalesce(format_type(a.type, null), '')
		from pg_proc p
		left join lateral unnest(p.proargnames, p.proargtypes::oid[]) a (name, type) on true
		where p.pronamespace = 'workq'::regnamespace and p.proname !~ '^_'`)
	require.NoError(t, err)
	types := map[string]map[string]string{}
	var function, argument, typ string
	_, err = pgx.ForEachRow(rows, []any{&function, &argument, &typ}, func() error {
		if types[function] == nil {
			types[function] = map[string]string{}
		}
		if argument != "" {
			types[function][argument] = typ
		}
		return nil
	})
	require.NoError(t, err)
	require.Greater(t, len(types), 25)
	return types
}

// call is the SQL of a case.
func (w *argumentWorld) call(c badArgument) string {
	arguments := map[string]string{}
	for name, value := range w.goodCalls[c.function] {
		arguments[name] = value
	}
	for name, value := range c.with {
		arguments[name] = value
	}
	if c.argument != "" {
		arguments[c.argument] = c.value
	}
	var list []string
	for name, value := range arguments {
		if value != "" {
			list = append(list, name+" => "+value)
		}
	}
	sort.Strings(list)
	return fmt.Sprintf("select * from workq.%s(%s)", c.function, strings.Join(list, ", "))
}

// everything is all rows of all tables, as one string.
func (w *argumentWorld) everything(t *testing.T) string {
	t.Helper()
	return value[string](t, w.db, `
		select jsonb_pretty(jsonb_build_object(
			'queue', (select jsonb_agg(to_jsonb(r) order by r.id) from workq.queue r),
			'message', (select jsonb_agg(to_jsonb(r) order by r.id) from workq.message r),
			'delivery', (select jsonb_agg(to_jsonb(r) order by r.queue_id, r.message_id) from workq.delivery r),
			'attempt', (select jsonb_agg(to_jsonb(r) order by r.message_id, r.finished_at) from workq.attempt r),
			'dead_letter', (select jsonb_agg(to_jsonb(r) order by r.queue_id, r.message_id) from workq.dead_letter r)))`)
}

// check runs the call of a case and says what is wrong with its answer.
func (w *argumentWorld) check(t *testing.T, c badArgument) {
	t.Helper()
	sql := w.call(c)
	_, err := w.db.Exec(t.Context(), sql, c.params...)
	var pg *pgconn.PgError
	if !assert.ErrorAs(t, err, &pg, shortened(sql)) {
		return
	}
	assert.Contains(t, c.states, pg.Code, "%s: %s", shortened(sql), pg.Message)
	if c.foreign || !ownError(pg.Code) {
		return
	}
	assert.NotEmpty(t, pg.Detail, "DETAIL of %s", shortened(sql))
	assert.NotEmpty(t, pg.Hint, "HINT of %s", shortened(sql))
	assert.Less(t, len(pg.Detail), 600, "DETAIL does not echo what was given without end")
	assert.Equal(t, strings.ToLower(pg.Message[:1]), pg.Message[:1], "lower-case message")
	assert.False(t, strings.HasSuffix(pg.Message, "."), "no full stop: %s", pg.Message)
	if slices.Contains([]string{"22023", "0A000"}, pg.Code) && c.argument != "" {
		// Many say it of one: ids is null, in the words of `id is null`.
		stem := c.argument[:min(max(len(c.argument)-1, 2), 5)]
		said := pg.Detail + "; " + pg.Hint
		assert.True(t, strings.Contains(said, stem) || strings.Contains(said, "arrays"), "%s: DETAIL names the argument: %s", shortened(sql), said)
	}
}

// ownError is true for what workq itself says, and not PostgreSQL.
func ownError(code string) bool {
	return strings.HasPrefix(code, "WQ") || code == "22023" || code == "0A000" || code == "2BP01"
}

func shortened(s string) string {
	if len(s) > 300 {
		return s[:300] + "…"
	}
	return s
}

const (
	invalid  = "22023"
	noQueue  = "WQ001"
	notBuilt = "0A000"
)

// badQueues are names that no queue has.
var badQueues = []string{
	"''", "' '", "'nope'", "'Q'", "'q '", "'q;drop table workq.queue'", "'q'';drop table workq.queue;--'", `'q"'`, "'q\\'", "'workq.queue'", "'%'", "'q' || chr(10)", "'ü'",
	"repeat('a', 48)", "repeat('q', 10240)", "repeat('''', 10240)", "'$(touch x)'", "'{}'", "'0'",
}

// settingCases are those that create_queue and alter_queue share.
func settingCases(function string) []badArgument {
	var cases []badArgument
	add := func(argument string, state string, values ...string) {
		for _, v := range values {
			cases = append(cases, badArgument{function: function, argument: argument, value: v, states: []string{state}})
		}
	}
	add("visibility", invalid, "'0'", "'-1 s'", "'0.0009 s'", "'12 hours 1 ms'", "'1000 years'")
	add("visibility_factor", invalid, "0", "-1", "0.999", "100.001", "'NaN'", "'Infinity'", "'-Infinity'")
	add("max_visibility", invalid, "'0'", "'-1 s'", "'366 days'", "'1 s'")
	add("max_attempts", invalid, "0", "-1", "-2147483648")
	add("retry_delays", invalid, "'{}'", "'{null}'", "'{1 s,null}'", "'{-1 s}'", "'{366 days}'", "'{{1 s,2 s}}'", "array_fill(interval '1 s', array[101])", "array_fill(interval '1 s', array[10000])")
	add("retry_jitter", invalid, "-0.001", "1.001", "'NaN'", "'Infinity'", "'-Infinity'")
	add("ttl", invalid, "'0'", "'-1 s'", "'101 years'")
	add("retention", invalid, "'-1 s'", "'101 years'")
	add("dead_retention", invalid, "'-1 s'", "'101 years'")
	add("dead_letter_queue", noQueue, badQueues...)
	add("history", invalid, "''", "'some'", "'ALL'", "'all '", "repeat('x', 10240)", "''''", "'all; drop'")
	add("max_payload_bytes", invalid, "0", "-1", "268435457", "2147483647")
	add("max_depth", invalid, "0", "-1", "-9223372036854775808")
	add("keyed", notBuilt, "'none'", "''", "'some'")
	add("key_limit", notBuilt, "0", "1")
	add("clear_dead_on_ack", notBuilt, "false", "true")
	add("max_in_flight", notBuilt, "0", "1")
	add("rate_limit", notBuilt, "0", "1")
	add("rate_period", notBuilt, "'0'", "'1 s'")
	add("lifo_after", notBuilt, "'0'", "'1 s'")
	add("dedupe_scope", notBuilt, "'waiting'", "''")
	for _, argument := range []string{"visibility", "max_visibility", "ttl", "retention", "dead_retention"} {
		cases = append(cases, infinities(function, argument)...)
	}
	return cases
}

// infinities are the infinite intervals: out of range for workq from PostgreSQL 17 on, unreadable before.
func infinities(function, argument string) []badArgument {
	return []badArgument{
		{function: function, argument: argument, value: "'infinity'", states: []string{"22007", invalid}},
		{function: function, argument: argument, value: "'-infinity'", states: []string{"22007", invalid}},
	}
}

// batchCases are those that ack_many, fail_many, extend_many and release_many share.
func batchCases(function string, others map[string]string) []badArgument {
	var cases []badArgument
	for _, argument := range []string{"ids", "leases"} {
		for _, v := range []string{"null", "'{}'", "'{null}'", "'{1,null}'", "'{1,2}'", "'{{1}}'", "'{{1,2},{3,4}}'", "'[0:0]={1}'", "'[2:2]={1}'", "array_fill(1, array[10000])"} {
			cases = append(cases, badArgument{function: function, argument: argument, value: v, states: []string{invalid}})
		}
	}
	for argument, element := range others {
		for _, v := range []string{"'{}'", "'{%[1]s,%[1]s}'", "'{{%[1]s}}'", "'{{%[1]s,%[1]s}}'", "'[0:0]={%[1]s}'"} {
			if strings.Contains(v, "%") {
				v = fmt.Sprintf(v, element)
			}
			cases = append(cases, badArgument{function: function, argument: argument, value: v, states: []string{invalid}})
		}
	}
	return cases
}

// specificCases are those that only one function has.
func specificCases() []badArgument {
	var cases []badArgument
	add := func(function, argument string, state string, values ...string) {
		for _, v := range values {
			cases = append(cases, badArgument{function: function, argument: argument, value: v, states: []string{state}})
		}
	}

	cases = append(cases, settingCases("create_queue")...)
	cases = append(cases, settingCases("alter_queue")...)
	add("create_queue", "dead_letter_queue", invalid, "'new'")
	add("alter_queue", "dead_letter_queue", invalid, "'q'")
	add("alter_queue", "clear", invalid, "'{nope}'", "'{null}'", "'{max_depth,nope}'", "'{visibility}'", "'{\"\"}'", "'{{ttl,nope}}'", "array[repeat('x', 10240)]", "array['ttl; drop']", "array['''']")
	cases = append(cases, badArgument{function: "create_queue", argument: "visibility", value: "'31 s'", with: map[string]string{"queue": "'q'"}, states: []string{"WQ008"}})
	add("drop_queue", "force", invalid, "null")
	add("drop_queue", "queue", "2BP01", "'sibling'")
	add("drop_queue", "force", "WQ007", "false")
	add("drop_queue", "", "WQ007", "")

	tooLate := []string{"clock_timestamp() + interval '101 years'", "'infinity'", "'294276-12-31'"}
	add("enqueue", "payload", "WQ004", "to_jsonb(repeat('x', 1048576))")
	add("enqueue", "body", "WQ004", "convert_to(repeat('x', 1048577), 'UTF8')")
	add("enqueue", "content_type", invalid, "repeat('x', 257)", "repeat('x', 10240)", "repeat('ü', 129)")
	add("enqueue", "kind", invalid, "repeat('x', 257)", "repeat('x', 10240)", "repeat('ü', 129)")
	add("enqueue", "headers", invalid, "'[]'", "'1'", "'\"s\"'", "'null'", "'true'", "jsonb_build_object('h', repeat('x', 16384))", "jsonb_build_object('h', repeat('x', 10000000))")
	add("enqueue", "priority", invalid, "-1", "11", "2147483647", "-2147483648")
	add("enqueue", "delay", invalid, "'-1 s'", "'100 years 1 s'", "'-100 years'")
	add("enqueue", "run_at", invalid, tooLate...)
	add("enqueue", "group_key", notBuilt, "'g'", "''", "repeat('x', 10240)", "''''")
	add("enqueue", "dedupe_key", notBuilt, "'d'", "''", "repeat('x', 10240)", "''''")
	add("enqueue", "dedupe_for", notBuilt, "'1 s'", "'-1 s'")
	add("enqueue", "ttl", invalid, "'0'", "'-1 s'", "'101 years'")
	add("enqueue", "max_attempts", invalid, "0", "-1", "-2147483648")
	for _, argument := range []string{"delay", "ttl"} {
		cases = append(cases, infinities("enqueue", argument)...)
	}

	for argument, element := range map[string]string{
		"payloads": "1", "bodies": "a", "content_types": "a", "kinds": "a", "priorities": "1", "run_ats": "2100-01-01", "headers": "null",
	} {
		if argument != "kinds" { // two kinds, and one of the others
			cases = append(cases, badArgument{function: "enqueue_many", argument: argument, value: fmt.Sprintf("'{%s}', kinds => '{a,b}'", element), states: []string{invalid}})
			cases = append(cases, badArgument{function: "enqueue_many", argument: argument, value: "'{}', kinds => '{a,b}'", states: []string{invalid}})
		}
		cases = append(cases, badArgument{function: "enqueue_many", argument: argument, value: fmt.Sprintf("'{{%[1]s,%[1]s},{%[1]s,%[1]s}}'", element), states: []string{invalid}})
	}
	add("enqueue_many", "payloads", "WQ004", "array['1', to_jsonb(repeat('x', 1048576))]")
	add("enqueue_many", "bodies", "WQ004", "array['a', convert_to(repeat('x', 1048577), 'UTF8')]")
	add("enqueue_many", "content_types", invalid, "array['a', repeat('x', 257)]")
	add("enqueue_many", "kinds", invalid, "array['a', repeat('x', 257)]")
	cases = append(cases,
		badArgument{function: "enqueue_many", argument: "kinds", value: "'{a,b}'", with: map[string]string{"queue": "'full'"}, states: []string{"WQ005"}},
		badArgument{function: "enqueue_many", argument: "payloads", value: "array['1'::jsonb, to_jsonb(repeat('x', 989))]", with: map[string]string{"queue": "'small'"}, states: []string{"WQ004"}},
		badArgument{function: "enqueue_many", argument: "bodies", value: "array[convert_to(repeat('x', 500), 'UTF8')]",
			with: map[string]string{"queue": "'small'", "payloads": "array[to_jsonb(repeat('x', 500))]"}, states: []string{"WQ004"}})
	add("enqueue_many", "headers", invalid, "'{\"{}\",[]}'", "array['{}', '1']::jsonb[]", "array['{}', jsonb_build_object('h', repeat('x', 16384))]")
	add("enqueue_many", "priorities", invalid, "'{5,11}'", "'{-1}'")
	for _, v := range tooLate {
		add("enqueue_many", "run_ats", invalid, "array[null, "+v+"]::timestamptz[]")
	}
	add("enqueue_many", "group_keys", notBuilt, "'{a}'", "'{}'", "'{null}'")
	add("enqueue_many", "dedupe_keys", notBuilt, "'{a}'", "'{}'", "'{null}'")
	add("enqueue_many", "dedupe_for", notBuilt, "'1 s'")
	add("enqueue_many", "ttl", invalid, "'0'", "'-1 s'", "'101 years'")
	add("enqueue_many", "max_attempts", invalid, "0", "-1")
	cases = append(cases, infinities("enqueue_many", "ttl")...)

	add("receive", "max_messages", invalid, "null", "0", "-1", "1001", "2147483647", "-2147483648")
	add("receive", "visibility", invalid, "'0'", "'-1 s'", "'0.0009 s'", "'12 hours 1 ms'")
	add("receive", "worker", invalid, "repeat('w', 257)", "repeat('ü', 129)", "repeat('w', 10240)")
	cases = append(cases, infinities("receive", "visibility")...)

	for _, function := range []string{"ack", "fail", "extend", "release", "report"} {
		add(function, "id", invalid, "null")
		add(function, "lease", invalid, "null")
	}
	add("ack", "strict", invalid, "null")
	for _, v := range []string{"0", "1", "-1", "9223372036854775807", "-9223372036854775808"} {
		cases = append(cases,
			badArgument{function: "ack", argument: "lease", value: v, with: map[string]string{"strict": "true"}, states: []string{"WQ002"}},
			badArgument{function: "ack", argument: "id", value: v, with: map[string]string{"strict": "true"}, states: []string{"WQ002"}})
	}
	add("fail", "permanent", invalid, "null")
	add("fail", "retry_in", invalid, "'-1 s'", "'366 days'")
	add("extend", "visibility", invalid, "'0'", "'-1 s'", "'0.0009 s'", "'12 hours 1 ms'")
	add("release", "delay", invalid, "'-1 s'", "'366 days'")
	cases = append(cases, infinities("fail", "retry_in")...)
	cases = append(cases, infinities("extend", "visibility")...)
	cases = append(cases, infinities("release", "delay")...)
	cases = append(cases, batchCases("ack_many", map[string]string{"results": "1"})...)
	cases = append(cases, batchCases("fail_many", map[string]string{"errors": "e", "retry_ins": "1 s", "permanents": "t", "details": "1"})...)
	cases = append(cases, batchCases("extend_many", map[string]string{"visibilities": "1 s"})...)
	cases = append(cases, batchCases("release_many", map[string]string{"delays": "1 s"})...)
	add("fail_many", "retry_ins", invalid, "'{-1 s}'", "'{366 days}'")
	add("extend_many", "visibilities", invalid, "'{0}'", "'{-1 s}'", "'{12 hours 1 ms}'")
	add("release_many", "delays", invalid, "'{-1 s}'", "'{366 days}'")

	for _, function := range []string{"cancel", "run_now", "get", "history"} {
		add(function, "id", invalid, "null")
	}
	add("get", "id", "WQ003", "0", "-1", "9223372036854775807")
	add("redrive", "to_queue", noQueue, badQueues...)
	add("redrive", "max_messages", invalid, "null", "0", "-1", "100001", "2147483647")
	add("redrive", "dry_run", invalid, "null")
	add("peek", "max_messages", invalid, "null", "0", "-1", "10001", "2147483647")
	add("peek", "state", invalid, "''", "'Ready'", "'some'", "''''", "'ready; drop'", "repeat('x', 10240)")
	add("dead_letters", "max_messages", invalid, "null", "0", "-1", "10001", "2147483647")
	add("sweep", "max_rows", invalid, "null", "0", "-1", "100001", "2147483647")
	return cases
}

// queueCases are a bad queue for every function that takes one.
func queueCases(types map[string]map[string]string) []badArgument {
	var cases []badArgument
	for function, arguments := range types {
		if arguments["queue"] == "" {
			continue
		}
		for _, name := range badQueues {
			state := noQueue
			if function == "create_queue" {
				if state = invalid; name == "'nope'" || name == "'workq.queue'" {
					continue // there a good name
				}
			}
			cases = append(cases, badArgument{function: function, argument: "queue", value: name, states: []string{state}})
		}
		if function != "queues" && function != "stats" { // null means all of them there
			cases = append(cases, badArgument{function: function, argument: "queue", value: "null", states: []string{invalid}})
			cases = append(cases, badArgument{function: function, argument: "queue", value: "", states: []string{"42883"}})
		}
	}
	return cases
}

// typeCases are values that no argument of the type can have, for every argument of every function.
// PostgreSQL itself refuses them, before workq is called.
func typeCases(types map[string]map[string]string) []badArgument {
	unreadable := map[string][]badArgument{
		"integer":                  {{value: "'x'", states: []string{"22P02"}}, {value: "''", states: []string{"22P02"}}, {value: "'2147483648'", states: []string{"22003"}}, {value: "1.5", states: []string{"42883"}}},
		"bigint":                   {{value: "'x'", states: []string{"22P02"}}, {value: "''", states: []string{"22P02"}}, {value: "'9223372036854775808'", states: []string{"22003"}}, {value: "1.5", states: []string{"42883"}}},
		"boolean":                  {{value: "'maybe'", states: []string{"22P02"}}, {value: "''", states: []string{"22P02"}}, {value: "1", states: []string{"42883"}}},
		"double precision":         {{value: "'x'", states: []string{"22P02"}}, {value: "'1e400'", states: []string{"22003"}}},
		"interval":                 {{value: "'x'", states: []string{"22007"}}, {value: "''", states: []string{"22007"}}, {value: "'9999999999 years'", states: []string{"22008", "22015"}}, {value: "30", states: []string{"42883"}}},
		"timestamp with time zone": {{value: "'x'", states: []string{"22007"}}, {value: "'2026-02-30'", states: []string{"22008"}}, {value: "'2026-01-01 00:00 Nowhere/City'", states: []string{"22023", "22007"}}, {value: "1767225600", states: []string{"42883"}}},
		"jsonb": {
			{value: "'{'", states: []string{"22P02"}}, {value: "''", states: []string{"22P02"}}, {value: "'{\"a\": NaN}'", states: []string{"22P02"}},
			{value: `'"\u0000"'`, states: []string{"22P05"}}, {value: `'"\ud800"'`, states: []string{"22P02"}}, {value: "'1e400000'", states: []string{"22003"}},
			{value: "(repeat('[', 100000) || repeat(']', 100000))::jsonb", states: []string{"54001"}},
			{value: "(repeat('{\"a\":', 100000) || '1' || repeat('}', 100000))::jsonb", states: []string{"54001"}},
			{value: "'{}'::json", states: []string{"42883"}},
			{value: "$1::text::jsonb", params: []any{"\"\xff\""}, states: []string{"22021"}},
		},
		"text":  {{value: "$1::text", params: []any{"\xff"}, states: []string{"22021"}}, {value: "$1::text", params: []any{"\xed\xa0\x80"}, states: []string{"22021"}}, {value: "$1::text", params: []any{"a\x00b"}, states: []string{"22021"}}},
		"bytea": {{value: `'\xZZ'`, states: []string{"22023", "22P02"}}, {value: `'\x0'`, states: []string{"22023", "22P02"}}},
	}
	var cases []badArgument
	for function, arguments := range types {
		for argument, typ := range arguments {
			cases = append(cases, badArgument{function: function, argument: argument, value: "point '(0,0)'", states: []string{"42883"}})
			element, isArray := strings.CutSuffix(typ, "[]")
			if isArray {
				cases = append(cases,
					badArgument{function: function, argument: argument, value: "'x'", states: []string{"22P02"}},
					badArgument{function: function, argument: argument, value: "'{{null},{null,null}}'", states: []string{"22P02"}},
					badArgument{function: function, argument: argument, value: "'{1'", states: []string{"22P02"}},
					badArgument{function: function, argument: argument, value: "array[point '(0,0)']", states: []string{"42883"}})
				continue
			}
			for _, c := range unreadable[element] {
				c.function, c.argument, c.foreign = function, argument, true
				cases = append(cases, c)
			}
		}
		cases = append(cases, badArgument{function: function, argument: "no_such_argument", value: "1", states: []string{"42883"}})
	}
	return cases
}

// TestEveryBadArgumentIsRefused is fault 22 and the contract's line on arguments: each gets its SQLSTATE,
// a DETAIL and a HINT, nothing changes, and what lies beside it is unharmed.
func TestEveryBadArgumentIsRefused(t *testing.T) {
	t.Parallel()
	w := newArgumentWorld(t)
	before, catalogBefore := w.everything(t), catalog(t, w.db)

	cases := slices.Concat(specificCases(), queueCases(w.types), typeCases(w.types))
	covered := map[string]int{}
	functions := map[string][]badArgument{}
	for _, c := range cases {
		if c.argument != "" && c.argument != "no_such_argument" {
			require.NotEmpty(t, w.types[c.function][c.argument], "there is no argument %s of %s", c.argument, c.function)
		}
		covered[c.function+"."+c.argument]++
		functions[c.function] = append(functions[c.function], c)
	}
	for function, arguments := range w.types {
		for argument := range arguments {
			assert.GreaterOrEqual(t, covered[function+"."+argument], 2, "cases for %s of %s", argument, function)
		}
		t.Run(function, func(t *testing.T) {
			for _, c := range functions[function] {
				w.check(t, c)
				if t.Failed() && w.everything(t) != before {
					require.FailNow(t, "changed something", shortened(w.call(c)))
				}
			}
			assert.Equal(t, before, w.everything(t), "nothing changed")
		})
	}
	t.Logf("%d cases", len(cases))
	assert.Equal(t, catalogBefore, catalog(t, w.db), "no table, function or sequence came or went")

	// The siblings are unharmed.
	assert.Equal(t, "sibling", value[string](t, w.db, "select kind from workq.receive('sibling')"))
	assert.Equal(t, "ready", value[string](t, w.db, "select kind from workq.receive('q', 10)"))
	good := w.goodCalls["ack"]
	assert.Equal(t, "acked", value[string](t, w.db, fmt.Sprintf("select workq.ack('q', %s, %s)", good["id"], good["lease"])))
	assert.Equal(t, int64(1), value[int64](t, w.db, "select workq.redrive('q')"))
}

// A good call of each function works in the world that the bad ones are tried in: what they are
// refused for is the one argument.
func TestGoodArgumentsAreTaken(t *testing.T) {
	t.Parallel()
	w := newArgumentWorld(t)
	for function := range w.types {
		t.Run(function, func(t *testing.T) {
			tx, err := w.db.Begin(t.Context())
			require.NoError(t, err)
			defer func() { require.NoError(t, tx.Rollback(t.Context())) }()
			c := badArgument{function: function}
			if function == "drop_queue" {
				c.argument, c.value = "force", "true"
			}
			_, err = tx.Exec(t.Context(), w.call(c))
			require.NoError(t, err, w.call(c))
		})
	}
}

// Names and texts that look like code are only names and texts.
func TestTextsAreKeptAsTheyAre(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	execSQL(t, db, "select workq.create_queue('q')")
	for _, text := range []string{"", " ", "'; drop table workq.queue; --", `"`, `\`, "%s %L %I", "$1 $$", "<script>alert(1)</script>", "\n\t\r", "ümläut 🐘", strings.Repeat("x", 256)} {
		execSQL(t, db, "select workq.enqueue('q', to_jsonb($1::text), convert_to($1, 'UTF8'), $1, $1, jsonb_build_object($1, $1))", text)
		var kind, contentType, payload, header, worker, failure string
		var body []byte
		var id, lease int64
		err := db.QueryRow(t.Context(), "select id, lease, kind, content_type, payload #>> '{}', headers ->> $1, body from workq.receive('q', worker => $1)", text).
			Scan(&id, &lease, &kind, &contentType, &payload, &header, &body)
		require.NoError(t, err)
		assert.Equal(t, []string{text, text, text, text, text}, []string{kind, contentType, payload, header, string(body)})
		require.Equal(t, "dead", value[string](t, db, "select workq.fail('q', $1, $2, $3, permanent => true)", id, lease, text))
		require.NoError(t, db.QueryRow(t.Context(), "select h.worker, h.error from workq.history('q', $1) h", id).Scan(&worker, &failure))
		assert.Equal(t, []string{text, text}, []string{worker, failure})
		assert.Equal(t, int64(0), value[int64](t, db, "select workq.redrive('q', reason => $1)", text))
	}
	assert.Equal(t, int64(1), value[int64](t, db, "select count(*) from workq.queues()"))
}

// JSON as deep as PostgreSQL reads it comes back as it went in.
func TestDeepJSONIsKept(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	execSQL(t, db, "select workq.create_queue('q')")
	deep := strings.Repeat("[", 5000) + strings.Repeat("]", 5000)
	execSQL(t, db, "select workq.enqueue('q', $1::text::jsonb)", deep)
	assert.True(t, value[bool](t, db, "select payload = $1::text::jsonb from workq.receive('q')", deep))
	assert.Equal(t, "acked", value[string](t, db, "select workq.ack('q', id, lease, $1::text::jsonb) from workq.peek('q')", deep))
	assert.True(t, value[bool](t, db, "select result = $1::text::jsonb from workq.attempt", deep))
}

// maintain and drop_queue need to see what others have committed.
func TestOldSnapshotsAreRefusedWhereTheyWouldLoseMessages(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	execSQL(t, db, "select workq.create_queue('q')")
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		for _, sql := range []string{"select workq.maintain()", "select workq.drop_queue('q', force => true)"} {
			err := pgx.BeginTxFunc(t.Context(), db, pgx.TxOptions{IsoLevel: level}, func(tx pgx.Tx) error {
				_, err := tx.Exec(t.Context(), sql)
				return err
			})
			var pg *pgconn.PgError
			if assert.True(t, errors.As(err, &pg), "%s, %s", level, sql) {
				assert.Equal(t, notBuilt, pg.Code)
				assert.NotEmpty(t, pg.Detail)
				assert.NotEmpty(t, pg.Hint)
			}
		}
	}
}
