package users

import "context"

// CrowdHashes fills the queue for password hashes. The queue stays full until the returned function is called.
func (s *Service) CrowdHashes(ctx context.Context) (leave func(), err error) {
	if err := s.hash.acquire(ctx); err != nil {
		return nil, err
	}
	s.hash.release()
	for range maxWaiting {
		s.hash.waiting <- struct{}{}
	}
	return func() {
		for range maxWaiting {
			<-s.hash.waiting
		}
	}, nil
}
