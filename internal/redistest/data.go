package redistest

import (
	"context"
	"errors"
	"os"
)

// CopyData copies the data files of the server, as they are at one moment, into the
// directory to, which must not exist yet. The server stands still meanwhile. What is in
// memory alone is not in the copy: SAVE before, where there is no append-only file.
func (s *Server) CopyData(to string) error {
	if err := s.Pause(); err != nil {
		return err
	}
	return errors.Join(os.CopyFS(to, os.DirFS(s.path(dataDir))), s.Resume())
}

// RestartWith kills the server and starts it as [Server.Restart] does, with the data
// files that are in the directory from, in place of its own: see [Server.CopyData].
func (s *Server) RestartWith(ctx context.Context, from string) error {
	s.Kill()
	return s.restart(ctx, func() error {
		if err := os.RemoveAll(s.path(dataDir)); err != nil {
			return err
		}
		return os.CopyFS(s.path(dataDir), os.DirFS(from))
	})
}
