package domains

import "context"

// GetByName returns the team's domain with the given name, which must be in lower-case ASCII. The domain may be in any
// state. If the team has not added the domain, GetByName returns a NotFound fault.
func (s *Service) GetByName(ctx context.Context, teamID, name string) (Domain, error) {
	return domainByName(ctx, s.DB.Reader, teamID, name)
}

// Owned returns the domain with the given name, of any team, for commands of the operator. The name must be in
// lower-case ASCII. If no team has added the domain, Owned returns a NotFound fault.
func (s *Service) Owned(ctx context.Context, name string) (Domain, error) {
	return domainOwned(ctx, s.DB.Reader, name)
}
