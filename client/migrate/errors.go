package migrate

import (
	"errors"
	"fmt"
)

// ErrNewer is found by errors.Is when the database was migrated by a newer workq.
var ErrNewer = errors.New("the database is newer than this workq")

// NewerError says by how much. Nothing was changed in the database.
type NewerError struct {
	Database int32 // the schema version of the database
	Binary   int32 // the newest version that this binary knows
}

func (e *NewerError) Error() string {
	return fmt.Sprintf("the database is at workq schema version %d, this binary knows versions up to %d: "+
		"install a newer workq, nothing was changed", e.Database, e.Binary)
}

// Is makes errors.Is(err, ErrNewer) true.
func (e *NewerError) Is(target error) bool { return target == ErrNewer }
