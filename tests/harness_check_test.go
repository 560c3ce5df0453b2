package tests

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheTestsRunAsAnOrdinaryRoleInADatabaseOfTheirOwn(t *testing.T) {
	a, b := newDB(t), newDB(t)
	require.Equal(t, "off", value[string](t, a, "show is_superuser"))
	require.Equal(t, "on", value[string](t, connect(t, superuserURL(t, newDBURL(t))), "show is_superuser"))
	require.NotEqual(t, value[string](t, a, "select current_database()"), value[string](t, b, "select current_database()"))
	execSQL(t, a, "create table only_here ()")
	require.True(t, value[bool](t, b, "select to_regclass('only_here') is null"))
}

func TestWaitUntilBlockedSeesTheWaitAndSqlstateTheEnd(t *testing.T) {
	url := newDBURL(t)
	holder, waiter, watcher := connect(t, url), connect(t, url), connect(t, url)
	execSQL(t, holder, "select pg_advisory_lock(1)")
	waiting := inBackground(func() (bool, error) {
		_, err := waiter.Exec(context.WithoutCancel(t.Context()), "select pg_advisory_lock(1)")
		return true, err
	})
	waitUntilBlocked(t, watcher, pidOf(waiter))
	require.True(t, value[bool](t, watcher, "select pg_cancel_backend($1)", int32(pidOf(waiter))))
	_, err := result(t, waiting)
	require.Equal(t, "57014", sqlstate(err))
	require.Empty(t, sqlstate(nil))
}
