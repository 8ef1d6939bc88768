package node

import (
	"fmt"

	"github.com/postrider/postrider/internal/lib/config"
	"github.com/postrider/postrider/internal/platform/db"
)

// explain adds to an error what only operators may know: what the database reported, and what to do if a disk is full.
func explain(c config.Config, err error) error {
	cause := db.Cause(err)
	switch {
	case err == nil:
		return nil
	case db.IsFull(err) && c.DatabaseURL == "":
		return fmt.Errorf("the disk of data_dir (%s) is full, so the database can store nothing: free some space, or move "+
			"the folder to a larger disk: %w", c.DataDir, err)
	case db.IsFull(err):
		return fmt.Errorf("the disk of the PostgreSQL server is full, so the database can store nothing: free some space "+
			"there: %w", err)
	case cause != "":
		return fmt.Errorf("%w (%s)", err, cause)
	}
	return err
}
