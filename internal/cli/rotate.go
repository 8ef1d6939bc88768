package cli

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/postrider/postrider/internal/node"
	"github.com/postrider/postrider/internal/platform/archive"
	"github.com/postrider/postrider/internal/platform/keyring"
)

// rotateMaster puts a new master key into the key file. The former keys stay in the file. The node seals the secrets in
// the database with the new key after its next start.
func rotateMaster(_ context.Context, e *env, n *node.Node, _ []string) error {
	if n.Config.SecretKey != "" {
		return errors.New("the secret key is in the setting secret_key, so this command cannot change it. Make a key with " +
			"`openssl rand -hex 32`. With several nodes, first append it to secret_key on all of them (FORMER,NEW) and restart " +
			"them; then put it first (NEW,FORMER) and restart them again. Keep the former key in the setting")
	}
	path := filepath.Join(n.Config.DataDir, archive.Key)
	if err := keyring.Rotate(path); err != nil {
		return err
	}
	return e.done(struct {
		File          string `json:"file"`
		RestartNeeded bool   `json:"restart_needed"`
	}{path, true}, path+" has a new secret key, followed by the former ones. Restart the node now: it then seals the "+
		"secrets in the database with the new key, and logs when that is done. Replace your copy of the key. Links, "+
		"unsubscribe addresses and return paths of the former keys work as long as these stay in the file")
}
