%% @private
%% @doc OTP's `ssl', and `public_key' that comes with it, which are not among our dependencies.
%%
%% What a remote call returns is not known to the compiler, so a release without them is not told of undefined functions.
-module(weir_ssl).

-export([ssl/0]).
-export([public_key/0]).

-spec ssl() -> module().
ssl() -> ssl.

-spec public_key() -> module().
public_key() -> public_key.
