package emails

import (
	"context"
	"errors"
	"fmt"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/page"
)

func insertAttachment(ctx context.Context, tx *db.Tx, a *Attachment) {
	tx.Queue(ctx, `INSERT INTO email_attachments (id, email_id, team_id, filename, content_type, content_id, size,
		blob_key, path)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`, db.ID(a.ID), db.ID(a.EmailID), db.ID(a.TeamID), a.Filename,
		a.ContentType, a.ContentID, a.Size, a.blobKey, a.path)
}

const attachmentColumns = `id, email_id, team_id, filename, content_type, content_id, size, blob_key, path`

func scanAttachment(r db.Row) (a Attachment, err error) {
	err = r.Scan((*db.ID)(&a.ID), (*db.ID)(&a.EmailID), (*db.ID)(&a.TeamID), &a.Filename, &a.ContentType, &a.ContentID,
		&a.Size, &a.blobKey, &a.path)
	return a, err
}

func attachmentsOf(ctx context.Context, r db.Reader, teamID, emailID string) ([]Attachment, error) {
	rows, err := r.Query(ctx, `SELECT `+attachmentColumns+
		` FROM email_attachments WHERE email_id = $1 AND team_id = $2 ORDER BY id`,
		db.ID(emailID), db.ID(teamID))
	return db.Collect(rows, err, scanAttachment)
}

func pageOfAttachments(ctx context.Context, r db.Reader, teamID, emailID string,
	p page.Page) ([]Attachment, bool, error) {
	return page.Query(ctx, r, page.Select{Text: `SELECT ` + attachmentColumns + ` FROM email_attachments
		WHERE email_id = $1 AND team_id = $2`, ID: "id", Args: []any{db.ID(emailID), db.ID(teamID)}}, p,
		scanAttachment)
}

func getAttachment(ctx context.Context, r db.Reader, teamID, emailID, attachmentID string) (Attachment, error) {
	a, err := scanAttachment(r.QueryRow(ctx, `SELECT `+attachmentColumns+` FROM email_attachments
		WHERE id = $1 AND email_id = $2 AND team_id = $3`, db.ID(attachmentID), db.ID(emailID), db.ID(teamID)))
	if errors.Is(err, db.ErrNoRows) {
		return a, fault.NotFoundf("Attachment not found")
	}
	if err != nil {
		return a, fmt.Errorf("read attachment: %w", err)
	}
	return a, nil
}

// messageInRow reads the row of a raw message. The second result is the key of the blob with the rest of the message,
// or "" if the row contains the whole message.
func messageInRow(ctx context.Context, r db.Reader, teamID, emailID string) (text []byte, blobKey string, err error) {
	err = r.QueryRow(ctx, `SELECT content, blob_key FROM email_messages WHERE email_id = $1 AND team_id = $2`,
		db.ID(emailID), db.ID(teamID)).Scan(&text, &blobKey)
	if errors.Is(err, db.ErrNoRows) {
		return nil, "", fileError(ctx, "", fmt.Errorf("the message of email %s is not stored", emailID))
	}
	if err != nil {
		return nil, "", fmt.Errorf("read the message of email %s: %w", emailID, err)
	}
	return text, blobKey, nil
}

// usedBlobs returns the keys that are used by an email of any team. SweepFiles calls it.
func usedBlobs(ctx context.Context, r db.Reader, keys []string) ([]string, error) {
	rows, err := r.Query(ctx, `SELECT blob_key FROM email_attachments WHERE blob_key = ANY($1)
		AND blob_key <> ''
		UNION ALL SELECT blob_key FROM email_messages WHERE blob_key = ANY($1) AND blob_key <> ''`, keys)
	return db.Collect(rows, err, scanText)
}

func setFetched(ctx context.Context, tx *db.Tx, a *Attachment) {
	tx.Queue(ctx, `UPDATE email_attachments SET blob_key = $3, size = $4, content_type = $5 WHERE email_id = $1
		AND id = $2`,
		db.ID(a.EmailID), db.ID(a.ID), a.blobKey, a.Size, a.ContentType)
}
