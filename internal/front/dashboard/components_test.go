package dashboard_test

import (
	"testing"

	"github.com/postrider/postrider/internal/accounts/teams"
)

// The page with all components belongs to nodes for development.
func TestComponentsElsewhere(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *board) { b.visitor(teams.Owner).shows("/dev/components", 404, "does not exist") })
}
