package templates

import (
	"context"
	"errors"
	"fmt"

	"github.com/postrider/postrider/internal/audience/scalar"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/erasure"
	"github.com/postrider/postrider/internal/platform/page"
)

const (
	aliasIndex = "templates_alias"

	clearVersions  = 20 // versions deleted in one transaction; only a few, because their content may be large
	clearTemplates = 100
	eraseRows      = 500
)

func notFound() *fault.Error        { return fault.NotFoundf("Template not found") }
func versionNotFound() *fault.Error { return fault.NotFoundf("Template version not found") }

// stored is the JSON form of a variable in the database.
type stored struct {
	ID        string      `json:"id"`
	Key       string      `json:"key"`
	Type      scalar.Type `json:"type"`
	Fallback  *string     `json:"fallback,omitzero"`
	CreatedAt int64       `json:"created_at"`
	UpdatedAt int64       `json:"updated_at"`
}

func encodeVariables(all []Variable) (string, error) {
	list := make([]stored, len(all))
	for i, v := range all {
		list[i] = stored{v.ID, v.Key, v.Type, nil, db.Micros(v.CreatedAt), db.Micros(v.UpdatedAt)}
		if v.Fallback != (scalar.Value{}) {
			list[i].Fallback = &v.Fallback.Text
		}
	}
	text, err := db.EncodeList(list)
	if err != nil {
		return "", fmt.Errorf("encode the variables of a template: %w", err)
	}
	return text, nil
}

func decodeVariables(text string) ([]Variable, error) {
	list, err := db.DecodeList[stored](text)
	if err != nil {
		return nil, fmt.Errorf("read the variables of a template: %w", err)
	}
	all := make([]Variable, len(list))
	for i, v := range list {
		all[i] = Variable{ID: v.ID, Key: v.Key, Type: v.Type, CreatedAt: db.Time(v.CreatedAt),
			UpdatedAt: db.Time(v.UpdatedAt)}
		if v.Fallback != nil {
			all[i].Fallback = scalar.Value{Type: v.Type, Text: *v.Fallback}
		}
	}
	return all, nil
}

const templateColumns = `t.id, t.team_id, t.name, t.alias, t.current_id, t.published_id, t.versions, t.revision,
	t.created_at, t.updated_at, t.published_at`

// templateRow is the scan destination for templateColumns.
type templateRow struct {
	Template
	created, updated, published int64
}

func (r *templateRow) dest(more ...any) []any {
	return append([]any{(*db.ID)(&r.ID), (*db.ID)(&r.TeamID), &r.Name, &r.Alias, (*db.ID)(&r.CurrentID),
		(*db.ID)(&r.PublishedID), &r.versions, &r.revision, &r.created, &r.updated, &r.published}, more...)
}

func (r *templateRow) template() Template {
	t := r.Template
	t.CreatedAt, t.UpdatedAt, t.PublishedAt = db.Time(r.created), db.Time(r.updated), db.Time(r.published)
	return t
}

const (
	versionItemColumns = `v.id, v.team_id, v.template_id, v.number, v.content_id, v.created_at, v.published_at`
	versionColumns     = versionItemColumns + `, v.variables`
)

// versionRow is the scan destination for versionColumns. The method itemDest returns the scan destinations for
// versionItemColumns.
type versionRow struct {
	Version
	created, published int64
	variables          string
}

func (r *versionRow) dest() []any {
	return append(r.itemDest(), &r.variables)
}

func (r *versionRow) itemDest() []any {
	return []any{(*db.ID)(&r.ID), (*db.ID)(&r.TeamID), (*db.ID)(&r.TemplateID), &r.Number, (*db.ID)(&r.contentID),
		&r.created, &r.published}
}

// item returns the version without its variables.
func (r *versionRow) item() Version {
	v := r.Version
	v.CreatedAt, v.PublishedAt = db.Time(r.created), db.Time(r.published)
	return v
}

func (r *versionRow) version() (v Version, err error) {
	v = r.item()
	v.Variables, err = decodeVariables(r.variables)
	return v, err
}

// named returns an SQL condition that selects a template by the team $1 and the id or alias $2, and the argument for
// $2.
func named(idOrAlias string) (condition string, arg any) {
	if id.Valid(idOrAlias) {
		return `t.team_id = $1 AND t.id = $2 AND NOT t.deleted`, db.ID(idOrAlias)
	}
	return `t.team_id = $1 AND t.alias = $2 AND t.alias <> '' AND NOT t.deleted`, idOrAlias
}

func getTemplate(ctx context.Context, r db.Reader, teamID, idOrAlias string) (Template, error) {
	var row templateRow
	condition, normal := named(idOrAlias)
	err := r.QueryRow(ctx, `SELECT `+templateColumns+` FROM templates t WHERE `+condition, db.ID(teamID), normal).
		Scan(row.dest()...)
	if errors.Is(err, db.ErrNoRows) {
		return Template{}, notFound()
	}
	if err != nil {
		return Template{}, fmt.Errorf("read template: %w", err)
	}
	return row.template(), nil
}

// getCurrent returns a template and its newest version, without the version's content.
func getCurrent(ctx context.Context, r db.Reader, teamID, idOrAlias string) (Template, Version, error) {
	var row templateRow
	var newest versionRow
	condition, normal := named(idOrAlias)
	err := r.QueryRow(ctx, `SELECT `+templateColumns+`, `+versionColumns+` FROM templates t
		JOIN template_versions v ON v.id = t.current_id WHERE `+condition, db.ID(teamID), normal).
		Scan(row.dest(newest.dest()...)...)
	if errors.Is(err, db.ErrNoRows) {
		return Template{}, Version{}, notFound()
	}
	if err != nil {
		return Template{}, Version{}, fmt.Errorf("read template: %w", err)
	}
	v, err := newest.version()
	return row.template(), v, err
}

// published holds the data needed to send emails with a template.
type published struct {
	templateID, versionID, contentID string
	variables                        []Variable
}

// getPublished returns the published version of a template. If no version has been published, versionID is empty.
func getPublished(ctx context.Context, r db.Reader, teamID, idOrAlias string) (p published, err error) {
	var variables string
	condition, normal := named(idOrAlias)
	err = r.QueryRow(ctx, `SELECT t.id, v.id, v.content_id, COALESCE(v.variables, '')
		FROM templates t LEFT JOIN template_versions v ON v.id = t.published_id WHERE `+condition, db.ID(teamID), normal).
		Scan((*db.ID)(&p.templateID), (*db.ID)(&p.versionID), (*db.ID)(&p.contentID), &variables)
	if errors.Is(err, db.ErrNoRows) {
		return p, notFound()
	}
	if err != nil {
		return p, fmt.Errorf("read the published version of a template: %w", err)
	}
	p.variables, err = decodeVariables(variables)
	return p, err
}

func getVersion(ctx context.Context, r db.Reader, teamID, templateID, versionID string) (Version, error) {
	return scanVersion(r.QueryRow(ctx, `SELECT `+versionColumns+` FROM template_versions v
		WHERE v.team_id = $1 AND v.template_id = $2 AND v.id = $3`, db.ID(teamID), db.ID(templateID), db.ID(versionID)))
}

func getVersionByNumber(ctx context.Context, r db.Reader, teamID, templateID string, number int64) (Version, error) {
	return scanVersion(r.QueryRow(ctx, `SELECT `+versionColumns+` FROM template_versions v
		WHERE v.team_id = $1 AND v.template_id = $2 AND v.number = $3`, db.ID(teamID), db.ID(templateID), number))
}

func scanVersion(from db.Row) (Version, error) {
	var row versionRow
	err := from.Scan(row.dest()...)
	if errors.Is(err, db.ErrNoRows) {
		return Version{}, versionNotFound()
	}
	if err != nil {
		return Version{}, fmt.Errorf("read the version of a template: %w", err)
	}
	return row.version()
}

func listTemplates(ctx context.Context, r db.Reader, teamID string, p page.Page) ([]Template, bool, error) {
	return page.Query(ctx, r, page.Select{Text: `SELECT ` + templateColumns + ` FROM templates t
		WHERE t.team_id = $1 AND NOT t.deleted`, ID: "t.id", Args: []any{db.ID(teamID)}}, p,
		func(r db.Row) (Template, error) {
			var row templateRow
			err := r.Scan(row.dest()...)
			return row.template(), err
		})
}

// listUnpublished returns templates whose newest version is not published.
func listUnpublished(ctx context.Context, r db.Reader, teamID string, limit int) ([]Template, error) {
	rows, err := r.Query(ctx, `SELECT `+templateColumns+` FROM templates t WHERE t.team_id = $1 AND NOT t.deleted
		AND t.current_id IS DISTINCT FROM t.published_id ORDER BY t.id DESC LIMIT $2`, db.ID(teamID), limit)
	return db.Collect(rows, err, func(r db.Row) (Template, error) {
		var row templateRow
		err := r.Scan(row.dest()...)
		return row.template(), err
	})
}

// listVersions returns versions without their variables and content.
func listVersions(ctx context.Context, r db.Reader, teamID, templateID string, p page.Page) ([]Version, bool, error) {
	return page.Query(ctx, r, page.Select{Text: `SELECT ` + versionItemColumns + ` FROM template_versions v
		WHERE v.team_id = $1 AND v.template_id = $2`, ID: "v.id", Args: []any{db.ID(teamID),
		db.ID(templateID)}}, p,
		func(r db.Row) (Version, error) {
			var row versionRow
			err := r.Scan(row.itemDest()...)
			return row.item(), err
		})
}

func insertTemplate(ctx context.Context, tx *db.Tx, t *Template) {
	tx.Proof(`SELECT 1 FROM templates WHERE id = $1`, db.ID(t.ID))
	tx.Queue(ctx, `INSERT INTO templates (id, team_id, name, alias, current_id, published_id, versions, revision,
		created_at, updated_at, published_at, deleted) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)`,
		db.ID(t.ID), db.ID(t.TeamID), t.Name, t.Alias, db.ID(t.CurrentID), db.ID(t.PublishedID), t.versions, t.revision,
		t.CreatedAt.UnixMicro(),
		t.UpdatedAt.UnixMicro(), db.Micros(t.PublishedAt), false)
}

func insertVersion(ctx context.Context, tx *db.Tx, v *Version) error {
	variables, err := encodeVariables(v.Variables)
	if err != nil {
		return err
	}
	tx.Proof(`SELECT 1 FROM template_versions WHERE id = $1`, db.ID(v.ID))
	tx.Queue(ctx, `INSERT INTO template_versions (id, team_id, template_id, number, content_id, created_at, published_at,
		variables) VALUES ($1, $2, $3, $4, $5, $6, $7,
		$8)`, db.ID(v.ID), db.ID(v.TeamID), db.ID(v.TemplateID), v.Number, db.ID(v.contentID),
		v.CreatedAt.UnixMicro(), db.Micros(v.PublishedAt), variables)
	return nil
}

// claim increments the revision of a template. Other changes to the template wait until this transaction ends. If the
// revision has changed or the template was deleted, claim returns false.
func claim(ctx context.Context, tx *db.Tx, t *Template) (bool, error) {
	n, err := tx.Exec(ctx, `UPDATE templates SET revision = revision + 1
		WHERE id = $1 AND team_id = $2 AND revision = $3 AND NOT deleted`, db.ID(t.ID), db.ID(t.TeamID), t.revision)
	if err != nil {
		return false, fmt.Errorf("claim template %s: %w", t.ID, err)
	}
	return n > 0, nil
}

// save writes the row of a template that was claimed in the same transaction.
func save(ctx context.Context, tx *db.Tx, t *Template) {
	tx.Queue(ctx, `UPDATE templates SET name = $3, alias = $4, current_id = $5, published_id = $6, versions = $7,
		updated_at = $8, published_at = $9 WHERE id = $1 AND team_id = $2`, db.ID(t.ID), db.ID(t.TeamID), t.Name, t.Alias,
		db.ID(t.CurrentID), db.ID(t.PublishedID), t.versions, t.UpdatedAt.UnixMicro(), db.Micros(t.PublishedAt))
}

func setPublished(ctx context.Context, tx *db.Tx, teamID, versionID string, at int64) {
	tx.Queue(ctx, `UPDATE template_versions SET published_at = $3 WHERE id = $1 AND team_id = $2`, db.ID(versionID),
		db.ID(teamID), at)
}

// markDeleted marks a template as deleted and releases its alias; it returns false if the template does not exist.
func markDeleted(ctx context.Context, tx *db.Tx, teamID, templateID string) (bool, error) {
	n, err := tx.Exec(ctx, `UPDATE templates SET deleted = $3, alias = '', revision = revision + 1
		WHERE id = $1 AND team_id = $2 AND NOT deleted`, db.ID(templateID), db.ID(teamID), true)
	return n > 0, err
}

// deletedTemplates returns a batch of templates, across all teams, that are marked as deleted but whose rows still
// exist.
func deletedTemplates(ctx context.Context, r db.Reader, after string) ([]Template, error) {
	rows, err := r.Query(ctx, `SELECT id, team_id FROM templates WHERE deleted AND id > $1 ORDER BY id LIMIT $2`,
		db.OrNoID(after), clearTemplates)
	all, err := db.Collect(rows, err, func(r db.Row) (t Template, err error) {
		err = r.Scan((*db.ID)(&t.ID), (*db.ID)(&t.TeamID))
		return t, err
	})
	if err != nil {
		return nil, fmt.Errorf("find deleted templates: %w", err)
	}
	return all, nil
}

// someVersions returns a batch of a template's versions, with their content ids.
func someVersions(ctx context.Context, r db.Reader, t *Template) ([]Version, error) {
	rows, err := r.Query(ctx, `SELECT id, content_id, published_at FROM template_versions
		WHERE team_id = $1 AND template_id = $2 ORDER BY id LIMIT $3`, db.ID(t.TeamID), db.ID(t.ID), clearVersions)
	all, err := db.Collect(rows, err, func(r db.Row) (v Version, err error) {
		var published int64
		err = r.Scan((*db.ID)(&v.ID), (*db.ID)(&v.contentID), &published)
		v.PublishedAt = db.Time(published)
		return v, err
	})
	if err != nil {
		return nil, fmt.Errorf("read the versions of template %s: %w", t.ID, err)
	}
	return all, nil
}

func deleteVersions(ctx context.Context, tx *db.Tx, teamID string, ids []string) {
	tx.Queue(ctx, `DELETE FROM template_versions WHERE id = ANY($1) AND COALESCE(team_id, team_id) = $2`, db.IDs(ids),
		db.ID(teamID))
}

// deleteTemplate deletes the row of a template that is marked as deleted and has no versions left.
func deleteTemplate(ctx context.Context, tx *db.Tx, t *Template) {
	tx.Queue(ctx, `DELETE FROM templates WHERE id = $1 AND team_id = $2 AND deleted`, db.ID(t.ID), db.ID(t.TeamID))
}

func eraseVersions(ctx context.Context, tx *db.Tx, teamID string) (int64, error) {
	return tx.Exec(ctx, `DELETE FROM template_versions WHERE id IN (SELECT id FROM template_versions WHERE team_id = $1
		LIMIT $2)`, db.ID(teamID), eraseRows)
}

func eraseTemplates(ctx context.Context, tx *db.Tx, teamID string) (int64, error) {
	return tx.Exec(ctx, `DELETE FROM templates WHERE id IN (SELECT id FROM templates WHERE team_id = $1 LIMIT $2)`,
		db.ID(teamID), eraseRows)
}

// ErasableTexts are the texts of templates in which an erasure replaces an address.
var ErasableTexts = erasure.Texts{Kind: "names of templates in which it was replaced", Table: "templates",
	Columns: []string{"name"}}
