package imports

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/erasure"
)

// strayAfter is the age at which a file that belongs to no import is deleted. Normally, an import is created within
// seconds after its file has been stored.
const strayAfter = time.Hour

// Sweep deletes files that no import needs, as well as ended imports and their failed rows once the retention has
// passed. Sweep must be called periodically.
func (s *Service) Sweep(ctx context.Context) error {
	err := s.Blobs.Sweep(ctx, filePrefix, s.DB.Now().Add(-strayAfter), func(ctx context.Context, keys []string) ([]string,
		error) {
		ids := make([]string, len(keys))
		for k, blobKey := range keys {
			ids[k] = strings.TrimPrefix(blobKey, filePrefix)
		}
		used, err := unfinished(ctx, s.DB.Reader, ids)
		for k := range used {
			used[k] = fileKey(used[k])
		}
		return used, err
	})
	if err != nil {
		return fmt.Errorf("delete files that no import needs: %w", err)
	}
	for {
		some, err := endedBefore(ctx, s.DB.Reader, s.DB.Now().Add(-time.Duration(s.retention.Load())).UnixMicro(), eraseRows)
		if err != nil {
			return fmt.Errorf("look for imports that ended long ago: %w", err)
		}
		if len(some) == 0 {
			return nil
		}
		for _, i := range some {
			// The failed rows are deleted before their import, so that if this sweep is interrupted, the next one can
			// find them through the import.
			if err := s.deleteFailures(ctx, i.TeamID, i.ID); err != nil {
				return err
			}
			if err := s.deleteImport(ctx, i.TeamID, i.ID); err != nil {
				return err
			}
		}
	}
}

func (s *Service) deleteImport(ctx context.Context, teamID, importID string) error {
	err := s.DB.Update(ctx, func(tx *db.Tx) error { deleteImport(ctx, tx, teamID, importID); return nil })
	if err != nil {
		return fmt.Errorf("delete import %s: %w", importID, err)
	}
	return nil
}

func (s *Service) deleteFailures(ctx context.Context, teamID, importID string) error {
	err := s.DB.Repeat(ctx, func(tx *db.Tx) (int64, error) { return deleteFailures(ctx, tx, teamID, importID) })
	if err != nil {
		return fmt.Errorf("delete the failed rows of import %s: %w", importID, err)
	}
	return nil
}

// EraseTeam deletes a team's imports. EraseTeam must be called before the team's contacts are erased. A running import
// ends when its row is deleted, and then adds no more contacts.
func (s *Service) EraseTeam(ctx context.Context, teamID string) error {
	for {
		some, err := importsOf(ctx, s.DB.Reader, teamID, "")
		if err != nil {
			return fmt.Errorf("look for the imports of team %s: %w", teamID, err)
		}
		if len(some) == 0 {
			return nil
		}
		for _, importID := range some {
			if err := s.deleteImport(ctx, teamID, importID); err != nil {
				return err
			}
			if err := s.deleteFailures(ctx, teamID, importID); err != nil {
				return err
			}
			s.deleteFile(ctx, importID)
		}
	}
}

// EraseAddress replaces an address in imports' failed rows. EraseAddress does not change the files of imports that have
// not ended, so such an import may add the address again. An import's file is deleted when the import ends.
func EraseAddress(ctx context.Context, d *db.DB, a erasure.Address, scope erasure.Scope) (found erasure.Report,
	err error) {
	for _, teamID := range scope.Teams {
		for after := ""; ; {
			some, err := importsOf(ctx, d.Reader, teamID, after)
			if err != nil {
				return found, fmt.Errorf("look for the imports of team %s: %w", teamID, err)
			}
			if len(some) == 0 {
				break
			}
			for _, importID := range some {
				if err := eraseIn(ctx, d, teamID, importID, a, scope.DryRun, &found); err != nil {
					return found, fmt.Errorf("erase an address in the failed rows of import %s: %w", importID, err)
				}
				after = importID
			}
		}
	}
	return found, nil
}

func eraseIn(ctx context.Context, d *db.DB, teamID, importID string, a erasure.Address, dry bool,
	found *erasure.Report) error {
	for after := int64(0); ; {
		upTo, err := lastFailureLine(ctx, d.Reader, teamID, importID, after)
		if err != nil || upTo == 0 {
			return err
		}
		some, err := failuresMatching(ctx, d.Reader, teamID, importID, a.Pattern(), after, upTo)
		if err != nil {
			return err
		}
		some = slices.DeleteFunc(some, func(f Failure) bool { return !a.In(f.Reason) && !a.In(f.Fields[0]) })
		if !dry && len(some) > 0 {
			err := d.Update(ctx, func(tx *db.Tx) error {
				for _, f := range some {
					replaceFailure(ctx, tx, teamID, importID, f.Line, a.Replace(f.Reason), a.Replace(f.Fields[0]))
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
		if len(some) > 0 {
			found.Add("failed rows of imports in which it was replaced", len(some))
		}
		after = upTo
	}
}
