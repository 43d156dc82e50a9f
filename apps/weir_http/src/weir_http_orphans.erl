%% @private
%% @doc Ends the processes of requests whose reactor was killed, or whose connection's process with TLS was. One that ends as it
%% should does that itself.
%%
%% A link or a monitor for each request would cost every request. So a reactor is monitored here once, and its processes are
%% looked for among all processes of the node when it is gone: they know their parent.
-module(weir_http_orphans).
-behaviour(gen_server).

-export([start_link/0]).
-export([watch/0]).

-export([init/1]).
-export([handle_call/3]).
-export([handle_cast/2]).
-export([handle_info/2]).

-spec start_link() -> {ok, pid()} | {error, term()}.
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).

%% @doc Has the calling process watched. Called with every request, and asks only once of the watcher that is there: another
%% one would know nothing.
-spec watch() -> ok.
watch() ->
    Watcher = whereis(?MODULE),
    case get(?MODULE) of
        Watcher ->
            ok;
        _ ->
            _ = put(?MODULE, Watcher),
            gen_server:cast(?MODULE, {watch, self()})
    end.

-spec init([]) -> {ok, []}.
init([]) -> {ok, []}.

-spec handle_call(term(), gen_server:from(), []) -> {reply, {error, badarg}, []}.
handle_call(_Request, _From, State) -> {reply, {error, badarg}, State}.

-spec handle_cast({watch, pid()}, []) -> {noreply, []}.
handle_cast({watch, Parent}, State) ->
    _ = monitor(process, Parent),
    {noreply, State}.

-spec handle_info(term(), []) -> {noreply, []}.
handle_info({'DOWN', _Monitor, process, _Parent, normal}, State) ->
    {noreply, State};
handle_info({'DOWN', _Monitor, process, Parent, _Reason}, State) ->
    Parents = more(#{Parent => []}),
    _ = [weir_http_worker:stop(Pid) || Pid <- processes(), is_of(Parents, Pid)],
    {noreply, State};
handle_info(_Message, State) ->
    {noreply, State}.

%% Where one was killed others may have been.
more(Parents) ->
    receive
        {'DOWN', _Monitor, process, Parent, _Reason} -> more(Parents#{Parent => []})
    after 0 -> Parents
    end.

is_of(Parents, Pid) ->
    case process_info(Pid, parent) of
        {parent, Parent} when is_map_key(Parent, Parents) -> weir_http_worker:is_worker(Pid);
        _ -> false
    end.
