package demo

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// world is a demo that went well: five files, of which the third was redelivered.
type world struct {
	truth    map[string]digest
	enqueued map[int64]message
	attempts []attempt
	verdict  func(*verdict) // what verify adds
}

func goodWorld() *world {
	w := &world{
		truth:    map[string]digest{},
		enqueued: map[int64]message{},
		verdict:  func(v *verdict) { v.killedLeases = 1 },
	}
	begin := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for i := range 5 {
		id, path := int64(i+1), fmt.Sprintf("file%d", i+1)
		w.truth[path] = digest{SHA256: fmt.Sprintf("%064d", i), Lines: i}
		w.enqueued[id] = message{path: path, at: begin}
		number := 1
		if id == 3 {
			w.attempts = append(w.attempts, attempt{ID: id, Number: 1, Outcome: "timeout", Started: begin, Finished: begin.Add(5 * time.Second)})
			number = 2
		}
		w.attempts = append(w.attempts, attempt{
			ID: id, Number: number, Outcome: "acked", Result: asJSON(w.truth[path]),
			Started: begin.Add(time.Second), Finished: begin.Add(time.Duration(id) * 2 * time.Second),
		})
	}
	return w
}

func asJSON(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

func (w *world) check() verdict {
	v := check(w.truth, w.enqueued, w.attempts)
	w.verdict(&v)
	return v
}

// acked is the ack of the message.
func (w *world) acked(id int64) *attempt {
	i := slices.IndexFunc(w.attempts, func(a attempt) bool { return a.ID == id && a.Outcome == "acked" })
	return &w.attempts[i]
}

func TestCheckCounts(t *testing.T) {
	v := goodWorld().check()
	require.NoError(t, v.err())
	require.Equal(t, 5, v.files)
	require.Equal(t, 5, v.results)
	require.Equal(t, 1, v.redelivered)
	require.Equal(t, "file3", v.examplePath)
	require.Len(t, v.example, 2)
	require.Equal(t, 4, v.first)
	require.Equal(t, 9*time.Second, v.firstSpan)
	require.Equal(t, 10*time.Second, v.span)
	require.Equal(t, 6*time.Second, v.percentile(50))
	require.Equal(t, 10*time.Second, v.percentile(100))
}

// A checker that finds nothing wrong proves nothing, unless it finds what was planted.
func TestCheckReportsWhatIsOff(t *testing.T) {
	for name, tt := range map[string]struct {
		plant func(*world)
		want  string
	}{
		"a wrong hash": {func(w *world) {
			w.acked(2).Result = asJSON(digest{SHA256: fmt.Sprintf("%064d", 9), Lines: 1})
		}, "1 wrong (file2)"},
		"a wrong line count": {func(w *world) {
			w.acked(2).Result = asJSON(digest{SHA256: w.truth["file2"].SHA256, Lines: 7})
		}, "1 wrong (file2)"},
		"the result of another file": {func(w *world) {
			w.acked(2).Result, w.acked(4).Result = w.acked(4).Result, w.acked(2).Result
		}, "2 wrong (file2, file4)"},
		"no result in the ack": {func(w *world) { w.acked(5).Result = nil }, "1 wrong (file5)"},
		"a file without an ack": {func(w *world) {
			w.attempts = slices.DeleteFunc(w.attempts, func(a attempt) bool { return a.ID == 4 })
		}, "1 lost (file4)"},
		"a message that only timed out": {func(w *world) { w.acked(1).Outcome = "timeout" }, "1 lost (file1)"},
		"a file that was not enqueued":  {func(w *world) { w.truth["file6"] = digest{} }, "1 lost (file6)"},
		"a message acked twice": {func(w *world) {
			w.attempts = append(w.attempts, *w.acked(1))
		}, "1 with two results (file1)"},
		"a file enqueued twice": {func(w *world) {
			w.enqueued[9] = w.enqueued[1]
			w.attempts = append(w.attempts, attempt{ID: 9, Number: 1, Outcome: "acked", Result: w.acked(1).Result})
		}, "1 with two results (file1)"},
		"one result lost and another twice": {func(w *world) {
			again := *w.acked(1)
			w.attempts = slices.DeleteFunc(w.attempts, func(a attempt) bool { return a.ID == 4 })
			w.attempts = append(w.attempts, again)
		}, "1 lost (file4); 1 with two results (file1)"},
		"a result for no message": {func(w *world) {
			w.attempts = append(w.attempts, attempt{ID: 77, Number: 1, Outcome: "acked", Result: asJSON(digest{})})
		}, "1 of no file (message 77)"},
		"messages left":  {func(w *world) { w.verdict = func(v *verdict) { v.killedLeases, v.unfinished = 1, 2 } }, "2 messages left in the queue"},
		"a dead letter":  {func(w *world) { w.verdict = func(v *verdict) { v.killedLeases, v.dead = 1, 1 } }, "1 dead letters"},
		"an idle victim": {func(w *world) { w.verdict = func(*verdict) {} }, "the killed worker held no lease, so nothing was shown: choose a folder with more files"},
		"a lease that was never redelivered": {func(w *world) {
			w.verdict = func(v *verdict) { v.killedLeases = 4 }
		}, "only 1 messages were redelivered, the killed worker held 4"},
	} {
		t.Run(name, func(t *testing.T) {
			w := goodWorld()
			tt.plant(w)
			require.EqualError(t, w.check().err(), tt.want)
		})
	}
}

func TestBothWaysOfHashingAgree(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "sub"), 0o755))
	for name, body := range map[string]string{"empty": "", "sub/two": "a\nb\n", "no newline at the end": "a\nb"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(body), 0o600))
	}
	require.NoError(t, os.Symlink("empty", filepath.Join(dir, "link")))
	paths, err := listFiles(dir)
	require.NoError(t, err)
	require.Equal(t, []string{"empty", "no newline at the end", "sub/two"}, paths, "regular files only")
	truth, err := hashAll(t.Context(), dir, paths)
	require.NoError(t, err)
	// From sha256sum and wc -l.
	require.Equal(t, digest{SHA256: "911169ddaaf146aff539f58c26c489af3b892dff0fe283c1c264c65ae5aa59a2", Lines: 2}, truth["sub/two"])
	require.Equal(t, 1, truth["no newline at the end"].Lines)
	root, err := os.OpenRoot(dir)
	require.NoError(t, err)
	defer root.Close()
	for _, path := range paths {
		d, err := digestOf(root, path)
		require.NoError(t, err)
		require.Equal(t, truth[path], d, path)
	}
}

func TestOnDatabaseChangesOnlyTheDatabase(t *testing.T) {
	for conn, want := range map[string]string{
		"postgres://u:p@h:1/old?sslmode=disable":           "postgres://u:p@h:1/new?sslmode=disable",
		"postgres:///old?host=%2Ftmp%2Fx&dbname=old":       "postgres:///new?host=%2Ftmp%2Fx",
		"host=/tmp/x user=u dbname=old application_name=y": "host=/tmp/x user=u dbname=old application_name=y dbname=new",
	} {
		got, err := onDatabase(conn, "new")
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	_, err := onDatabase("postgres://u:secret@h:x/", "new")
	require.Error(t, err)
	require.NotContains(t, err.Error(), "secret")
}

func TestNumbersForPeople(t *testing.T) {
	require.Equal(t, []string{"0", "999", "1,000", "11,479", "1,234,567", "-100", "-1,000"}, []string{
		thousands(0), thousands(999), thousands(1000), thousands(11479), thousands(1234567), thousands(-100), thousands(-1000)})
	require.Equal(t, []string{"350 ms", "5.0 s"}, []string{seconds(350 * time.Millisecond), seconds(5 * time.Second)})
}
