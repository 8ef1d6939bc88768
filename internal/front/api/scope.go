package api

import "github.com/postrider/postrider/internal/accounts/teams"

// Scope returns the scope that an actor needs for an operation, which is named as routes.go has it: a method and a
// path. It is for what offers operations in other forms; ok is false if there is no such operation, or if it needs
// none.
func (a *API) Scope(method, path string) (s teams.Scope, ok bool) {
	for i := range a.ops {
		if o := &a.ops[i]; o.method == method && o.path == path && o.scope != open {
			return o.scope, true
		}
	}
	return 0, false
}
